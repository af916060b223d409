package campaign

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/matrix"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// TestTheWallClockOfAClientJumps sets the wall clock of one of two clients by an hour, while the other's and the server's go on:
//
//   - Ahead, who asks for a lock of the other is refused as before. Who holds one is told at once that it is lost, since the
//     machine may have been suspended for an hour; what is left of it in the store is released, and the other gets it.
//   - Back, who takes a lock has it for no longer than before, by the monotonic clock, and nobody else is granted it meanwhile.
//
// GetSet alone writes times into the store, and has two holders in either case (V).
//
// The clock is the one by which the Client and GetSet go: see internal/wallclock. That of a process can't be moved from outside
// as that of redis-server is in TestTheClockOfAServerJumps, since Go programs do not ask the C library for the time.
//
//	go test ./internal/verify/campaign -run TestTheWallClockOfAClientJumps -v
func TestTheWallClockOfAClientJumps(t *testing.T) {
	locks := 3 // each an experiment
	if torture {
		locks = 50
	}
	servers := redistest.StartN(t, 5)
	for _, s := range strategies {
		if s.replicated || s.nested { // these send what the others of their kind do
			continue
		}
		for _, lib := range libraries {
			t.Run(s.name+"/"+lib.name, func(t *testing.T) {
				t.Parallel()
				ours, theirs := clockedClient(t, s, lib, servers), clockedClient(t, s, lib, servers)
				again := command("TestTheWallClockOfAClientJumps/" + s.name) // through all client libraries
				back := matrix.Cell{Strategy: s.name, Fault: "client clock back", Where: "redis-server", Trials: locks, Command: again}
				ahead := matrix.Cell{Strategy: s.name, Fault: "client clock ahead", Where: "redis-server", Trials: locks, Command: again}
				for i := range locks {
					if setBack(t, ours, theirs, fmt.Sprintf("%s, %d, back", t.Name(), i)) {
						back.Violations++
					}
					if setAhead(t, ours, theirs, fmt.Sprintf("%s, %d, ahead", t.Name(), i)) {
						ahead.Violations++
					}
				}
				back.Report(t)
				ahead.Report(t)
				for _, c := range []matrix.Cell{back, ahead} {
					if all := c.Violations == locks; all != s.sendsTimes || !all && c.Violations > 0 {
						t.Errorf("%s: two holders in %d of %d; expected in all of them: %v", c.Fault, c.Violations, locks, s.sendsTimes)
					}
				}
			})
		}
	}
}

const setBy = time.Hour

// setBack takes a lock by a clock that is behind, and tells whether another was granted it as well.
func setBack(t *testing.T, ours, theirs *clocked, key string) (two bool) {
	ours.clock.Jump(-setBy)
	defer ours.clock.Jump(setBy)
	l, err := ours.Lock(t.Context(), key, locker.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	two = theirs.isGranted(t, key)
	if two {
		return two
	}
	if err := l.Extend(t.Context(), ttl); err != nil {
		t.Errorf("back: Extend = %v", err)
	}
	if l.Context().Err() != nil {
		t.Errorf("back: %v", context.Cause(l.Context()))
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("back: Unlock = %v", err)
	}

	// The clock is set back when the lock is held: its time runs out all the same.
	l, err = ours.TryLock(t.Context(), key+", short", locker.WithTTL(200*time.Millisecond))
	for begun := time.Now(); err != nil; l, err = ours.TryLock(t.Context(), key+", short", locker.WithTTL(200*time.Millisecond)) {
		if time.Since(begun) > patience { // on a busy machine an answer may take longer than the lease
			t.Fatal(err)
		}
	}
	ours.clock.Jump(-setBy)
	defer ours.clock.Jump(setBy)
	time.Sleep(time.Until(l.Lease().Expires))
	if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		t.Errorf("back: held beyond %v", l.Lease().Expires)
	}
	return two
}

// setAhead asks for a lock of another by a clock that is ahead, and tells whether it was granted; then it sets the clock of the
// holder ahead.
func setAhead(t *testing.T, ours, theirs *clocked, key string) (two bool) {
	l, err := ours.Lock(t.Context(), key, locker.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	theirs.clock.Jump(setBy)
	two = theirs.isGranted(t, key)
	theirs.clock.Jump(-setBy)
	if two {
		return two
	}
	ours.clock.Jump(setBy)
	defer ours.clock.Jump(-setBy)
	if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		t.Errorf("ahead: the context says %v", context.Cause(l.Context()))
	}
	if err := l.Extend(t.Context(), ttl); !errors.Is(err, locker.ErrLost) {
		t.Errorf("ahead: Extend = %v", err)
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("ahead: Unlock = %v", err)
	}
	next, err := theirs.Lock(t.Context(), key, locker.WithWait(patience)) // far from the end of the lease
	if err != nil {
		t.Errorf("ahead: after the loss: %v", err)
		return two
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	return two
}

// A clocked is a Client with a wall clock of its own.
type clocked struct {
	*locker.Client
	clock *wallclock.Clock
}

func clockedClient(t *testing.T, s strategy, lib library, servers []*redistest.Server) *clocked {
	var stores []*redisstore.Store
	for _, server := range servers[:s.nodes] {
		stores = append(stores, lib.dial(t, server.Addr(), s.options...).store)
	}
	clock := new(wallclock.Clock)
	l, err := s.build(stores)
	if s.sendsTimes {
		l = legacy.GetSet(clockedStore{stores[0], clock})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &clocked{locker.New(clockedLocker{l, clock}, locker.WithTTL(ttl), locker.WithoutExtension()), clock}
}

// isGranted asks for a lock that another has. If it is granted it stays: another's may be in its place.
// On a busy machine nodes may be too slow to make a quorum: then it asks again.
func (c *clocked) isGranted(t *testing.T, key string) bool {
	begun := time.Now()
	_, err := c.TryLock(t.Context(), key)
	for err != nil && !errors.Is(err, locker.ErrHeld) {
		if time.Since(begun) > patience {
			t.Fatalf("%q: %v", key, err)
		}
		_, err = c.TryLock(t.Context(), key)
	}
	return err == nil
}

type clockedLocker struct {
	locker.Locker
	clock *wallclock.Clock
}

func (c clockedLocker) WallClock() *wallclock.Clock { return c.clock }

type clockedStore struct {
	*redisstore.Store
	clock *wallclock.Clock
}

func (c clockedStore) WallClock() *wallclock.Clock { return c.clock }
