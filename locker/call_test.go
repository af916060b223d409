package locker_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// grants is middleware that notes what the Client says of each Acquire that has granted.
type grants struct {
	mu  sync.Mutex
	all []granted
}

type granted struct {
	attempts          int
	contended, scoped bool
}

func (g *grants) around(next locker.Locker) locker.Locker { return noting{next, g} }

func (g *grants) noted() []granted {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all
}

type noting struct {
	locker.Locker
	grants *grants
}

func (n noting) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.Locker.Acquire(ctx, req)
	if err == nil {
		call := contract.CallOf(ctx)
		n.grants.mu.Lock()
		defer n.grants.mu.Unlock()
		n.grants.all = append(n.grants.all, granted{call.Attempts(), call.Contended(), call.Scoped()})
	}
	return lease, err
}

// remade builds each Request and each Lease again from its fields, as middleware may.
type remade struct{ locker.Locker }

func (r remade) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := r.Locker.Acquire(ctx, contract.Request{
		Key: req.Key, Token: req.Token, Owner: req.Owner, TTL: req.TTL,
		Turn: contract.Turn{Waiter: req.Waiter, OtherSoftware: req.OtherSoftware, Joins: req.Joins},
	})
	return remake(lease), err
}

func (r remade) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := r.Locker.Extend(ctx, remake(lease), ttl)
	return remake(extended), err
}

func (r remade) Release(ctx context.Context, lease contract.Lease) error {
	return r.Locker.Release(ctx, remake(lease))
}

func remake(l contract.Lease) contract.Lease {
	return contract.Lease{
		Key: l.Key, Token: l.Token, Owner: l.Owner, Fence: l.Fence, Granted: l.Granted, Expires: l.Expires, Quorum: l.Quorum,
		Share: contract.Share{Holds: l.Holds, Room: l.Room, Slot: l.Slot},
	}
}

func TestNoFieldOfARequestOrALeaseIsHidden(t *testing.T) {
	for of, most := range map[reflect.Type]int{reflect.TypeFor[contract.Request](): 6, reflect.TypeFor[contract.Lease](): 8} {
		if n := of.NumField(); n > most {
			t.Errorf("%v has %d fields; want %d at most", of, n, most)
		}
		for _, f := range reflect.VisibleFields(of) {
			if !f.IsExported() {
				t.Errorf("%v has the unexported field %s: whoever builds it again drops it", of, f.Name)
			}
		}
	}
}

// TestARequestAndALeaseAreFacts has middleware that copies field by field, on both sides of the wait. In
// silence it once turned waiting, handover and the hooks of other middleware off.
func TestARequestAndALeaseAreFacts(t *testing.T) {
	copies := func(next locker.Locker) locker.Locker { return remade{next} }
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		var begun, ended atomic.Int32 // a hook of the holder and one of the waiter may run at once
		follow := func(next locker.Locker) locker.Locker {
			return follower{next, func(call contract.Call) {
				call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
					begun.Add(1)
					return ctx, func(time.Time, error) { ended.Add(1) }
				})
			}}
		}
		c := locker.New(contract.Wrap(s, copies, follow, copies),
			locker.WithTTL(time.Second), locker.WithMaxHandovers(1), locker.WithMiddleware(copies, follow, copies))
		first := mustLock(t, c, "key")
		second := make(chan *locker.Lock)
		go func() {
			l, err := c.Lock(t.Context(), "key", locker.WithWait(2*time.Second))
			if err != nil {
				t.Errorf("Lock with WithWait while the lock is held = %v; want it to wait", err)
			}
			second <- l
		}()
		time.Sleep(1500 * time.Millisecond) // renewed meanwhile
		mustUnlock(t, first)
		l := <-second
		if l.Lease().Token != first.Lease().Token {
			t.Error("the lease was not handed over")
		}
		mustUnlock(t, l)
		if begun.Load() != 3 || ended.Load() != 3 { // the inner hook sees an attempt, and none is made for the second hold
			t.Errorf("%d holds begun, %d ended; want 3 by two middlewares, of which one sees attempts", begun.Load(), ended.Load())
		}
	})
}

// TestOnlyTheAttemptThatWonIsFollowed has middleware around each attempt, and a first attempt that nobody
// waits for any more when it is granted.
func TestOnlyTheAttemptThatWonIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		var followed []string
		follow := func(next locker.Locker) locker.Locker {
			return &slowFirst{Locker: next, begin: func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
				followed = append(followed, lease.Token)
				return ctx, nil
			}}
		}
		c := locker.New(contract.Wrap(s, follow), locker.WithTTL(10*time.Second))
		l, err := c.Lock(t.Context(), "key", locker.WithWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if token := l.Lease().Token; len(followed) != 1 || followed[0] != token {
			t.Errorf("followed %q; want %q", followed, token)
		}
		mustUnlock(t, l)
	})
}

// slowFirst answers the first Acquire after 3 seconds: later than a call with WithWait waits for it.
type slowFirst struct {
	locker.Locker
	begin func(context.Context, contract.Lease) (context.Context, func(time.Time, error))
	asked atomic.Bool
}

func (s *slowFirst) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if !s.asked.Swap(true) {
		time.Sleep(3 * time.Second)
	}
	lease, err := s.Locker.Acquire(ctx, req)
	if err == nil {
		contract.CallOf(ctx).OnHold(s.begin)
	}
	return lease, err
}

func TestWhatANodeOfAQuorumGrantsIsNoHold(t *testing.T) {
	bubble(t, func(t *testing.T, _ *spy, _ *locker.Client) {
		begun := 0
		follow := func(next locker.Locker) locker.Locker {
			return follower{next, func(call contract.Call) {
				call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
					begun++
					return ctx, nil
				})
			}}
		}
		nodes := make([]locker.Locker, 3)
		for i := range nodes {
			nodes[i] = contract.Wrap(single.New(memory.New()), follow)
		}
		quorum, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*locker.Client{locker.New(quorum), locker.New(quorum, locker.WithMiddleware(follow))} {
			begun = 0
			mustUnlock(t, mustLock(t, c, "key"))
		}
		if begun != 1 {
			t.Errorf("%d holds begun; want that of the middleware around the wait alone", begun)
		}
	})
}

// TestMiddlewareThatDropsTheCtxIsToldSo: without the values of the ctx, the Client could not tell how the
// call waits.
func TestMiddlewareThatDropsTheCtxIsToldSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		c := locker.New(s, locker.WithMiddleware(func(next locker.Locker) locker.Locker { return dropping{next} }))
		_, err := c.Lock(t.Context(), "key")
		var own *locker.Error
		if !errors.As(err, &own) || own.ErrorType() != "invalid" {
			t.Errorf("Lock = %v; want a permanent error", err)
		}
		if acquires, _, _, _ := s.asked(); acquires != 0 {
			t.Errorf("%d attempts; want none", acquires)
		}
	})
}

type dropping struct{ locker.Locker }

func (d dropping) Acquire(_ context.Context, req contract.Request) (contract.Lease, error) {
	return d.Locker.Acquire(context.Background(), req)
}

// TestMiddlewareMayAskTwiceAtOnce has middleware that makes two attempts at once, and goes on with one.
func TestMiddlewareMayAskTwiceAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		var told grants
		c := locker.New(s, locker.WithMiddleware(told.around, func(next locker.Locker) locker.Locker { return hedging{next} }))
		l := mustLock(t, c, "key", locker.WithWait(time.Second))
		if call := told.noted()[0]; call.attempts < 1 { // one of the two may have come first
			t.Errorf("%d attempts; want those of the Acquire that won", call.attempts)
		}
		time.Sleep(2 * time.Second)
		mustUnlock(t, l)
	})
}

type hedging struct{ locker.Locker }

func (h hedging) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	other := req
	other.Token = contract.NewToken()
	go func() {
		if lease, err := h.Locker.Acquire(ctx, other); err == nil {
			_ = h.Release(context.WithoutCancel(ctx), lease)
		}
	}()
	return h.Locker.Acquire(ctx, req)
}
