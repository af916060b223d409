package sloglocker_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/beneath"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// observe puts a log around l, and looks for tokens in it at the end.
func observe(t *testing.T, l locker.Locker) locker.Locker {
	j, s := newJournal(), &secrets{}
	t.Cleanup(func() {
		if s.in(j.all()) {
			t.Error("a token is in the log")
		}
	})
	return locker.Wrap(l, sloglocker.New(sloglocker.WithLogger(slog.New(j))), s.watch)
}

func TestContractOfSingle(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		store, outside := beneath.Memory(t)
		faulty := backendtest.Faulty(store)
		return observe(t, single.New(faulty)), beneath.Disturber{Outside: outside, Faults: faulty.Faults, Ops: plainOps}
	}})
}

var plainOps = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNX, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
}

func TestContractOfFenced(t *testing.T) {
	ops := map[lockertest.Op]backendtest.Op{
		lockertest.Acquire: backendtest.SetNXFenced, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
	}
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		store, outside := beneath.Memory(t)
		faulty := backendtest.FaultyFenced(store)
		return observe(t, fenced.New(faulty)), beneath.Disturber{Outside: outside, Faults: faulty.Faults, Ops: ops}
	}})
}

func TestContractOfReentrant(t *testing.T) {
	ops := map[lockertest.Op]backendtest.Op{
		lockertest.Acquire: backendtest.Enter, lockertest.Extend: backendtest.Renew, lockertest.Release: backendtest.Leave,
	}
	lockertest.Run(t, lockertest.Harness{
		Bubble: true,
		Except: []string{"an owner that asks with a new token is refused like anyone"},
		New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
			store, outside := beneath.Memory(t)
			faulty := backendtest.FaultyNested(store)
			return observe(t, reentrant.New(faulty)), nested{beneath.Disturber{Outside: outside, Faults: faulty.Faults, Ops: ops}}
		},
	})
}

// nested takes a hash for a foreign value, and a string for one of another type.
type nested struct{ beneath.Disturber }

func (n nested) SetForeign(key string) { n.SetForeignHash(key) }
func (n nested) SetOther(key string)   { n.Disturber.SetForeign(key) }

// TestContractOfLegacy is without faults: its commands serve several purposes, so a fault meant for one of them would need to
// know which it is.
func TestContractOfLegacy(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{
		Bubble: true, NoWatch: true,
		Cannot: []lockertest.Disturbance{
			lockertest.Fail, lockertest.Refuse, lockertest.Hang, lockertest.LoseReply, lockertest.LoseReplyHang,
			lockertest.Late, lockertest.LateReply, lockertest.Stall, lockertest.Ghost, lockertest.SetForeign, lockertest.SetOther,
		},
		Except: []string{ // a second SETNX does not look whose the value is
			"a retransmission with the same token is granted again, with its ttl anew",
			"a retransmission counts once: one Release frees the lock",
		},
		New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
			store, outside := beneath.Memory(t)
			faulty := backendtest.FaultyLegacy(store.(*memory.Store).Legacy())
			return observe(t, legacy.Expire(faulty)), beneath.Disturber{Outside: outside, Faults: faulty.Faults}
		},
	})
}

// TestContractOfRedlock has a log around the quorum and around each node.
func TestContractOfRedlock(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{
		Bubble: true,
		Except: []string{
			"a wait limit that is reached while the store hangs does not match ErrHeld: nobody knows",
			"of many concurrent Releases exactly one succeeds",
			"of many concurrent attempts exactly one is granted",
		},
		New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
			d := nodes{waits: make(chan struct{}, 1)}
			var lockers []locker.Locker
			for range 3 {
				store, outside := beneath.Memory(t)
				faulty := backendtest.Faulty(store)
				lockers = append(lockers, observe(t, single.New(faulty)))
				d.all = append(d.all, beneath.Disturber{Outside: outside, Faults: faulty.Faults, Ops: plainOps})
			}
			l, err := redlock.New(lockers)
			if err != nil {
				t.Fatal(err)
			}
			return observe(t, settled{l, d}), d
		},
	})
}

// nodes disturbs all nodes, once they have all answered.
type nodes struct {
	all   []beneath.Disturber
	waits chan struct{}
}

// still waits for them. Only one goroutine of a bubble may.
func (n nodes) still() {
	select {
	case n.waits <- struct{}{}:
		synctest.Wait()
		<-n.waits
	default:
	}
}

func (n nodes) each(do func(beneath.Disturber)) {
	n.still()
	for _, d := range n.all {
		do(d)
	}
}

func (n nodes) Holds(key string) bool {
	n.still()
	return slices.ContainsFunc(n.all, func(d beneath.Disturber) bool { return d.Holds(key) })
}

func (n nodes) Delete(key string)     { n.each(func(d beneath.Disturber) { d.Delete(key) }) }
func (n nodes) Expire(key string)     { n.each(func(d beneath.Disturber) { d.Expire(key) }) }
func (n nodes) SetForeign(key string) { n.each(func(d beneath.Disturber) { d.SetForeign(key) }) }
func (n nodes) SetOther(key string)   { n.each(func(d beneath.Disturber) { d.SetOther(key) }) }

func (n nodes) Fault(op lockertest.Op, f lockertest.Fault) {
	for _, d := range n.all {
		d.Fault(op, f)
	}
}

func (n nodes) FaultOnce(op lockertest.Op, f ...lockertest.Fault) {
	for _, d := range n.all {
		d.FaultOnce(op, f...)
	}
}

// settled answers when all nodes have, so that a fault that is meant for one call of each does not meet the next.
type settled struct {
	locker.Locker
	nodes
}

func (s settled) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	defer s.still()
	return s.Locker.Acquire(ctx, req)
}

func (s settled) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	defer s.still()
	return s.Locker.Extend(ctx, lease, ttl)
}

func (s settled) Release(ctx context.Context, lease locker.Lease) error {
	defer s.still()
	return s.Locker.Release(ctx, lease)
}

func (s settled) Watch(ctx context.Context, key string, wake func()) error {
	defer s.still()
	return s.Locker.Watch(ctx, key, wake)
}
