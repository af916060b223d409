package campaign

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// TestTheWallClockOfAClientJumps moves the wall clock of one of two clients by an hour. The clocks
// of the other client and of the server go on:
//
//   - Ahead: a lock that another holds is held, as before. A holder whose clock jumps learns at
//     once that its lock is lost, since the machine may have been suspended for an hour. The
//     cleanup releases the key, and the other client gets the lock.
//   - Back: a lease lasts no longer than before, by the monotonic clock, and nobody else gets the
//     lock meanwhile.
//
// Only GetSet writes times into the store. It has two holders in both cases (V).
//
// The clock is the one that the Client and GetSet use: see internal/wallclock. A test cannot move
// the clock of a Go process from outside, as TestTheClockOfAServerJumps does with redis-server,
// since Go programs do not ask the C library for the time.
//
//	go test ./proof/campaign -run TestTheWallClockOfAClientJumps -v
func TestTheWallClockOfAClientJumps(t *testing.T) {
	locks := 3 // each an experiment
	if full.Size() {
		locks = 50
	}
	servers := redistest.StartN(t, 5)
	for _, s := range strategies {
		if s.replicated || s.nested { // these send the same commands as another strategy
			continue
		}
		for _, lib := range libraries {
			t.Run(s.name+"/"+lib.name, func(t *testing.T) {
				t.Parallel()
				ours, theirs := clockedClient(t, s, s.build, lib, servers), clockedClient(t, s, s.others, lib, servers)
				beside := clockedClient(t, s, s.build, lib, servers) // its clock does not jump
				// with all client libraries
				again := command("TestTheWallClockOfAClientJumps/" + s.name)
				back := matrix.Cell{Strategy: s.name, Fault: "client clock back", Where: "redis-server", Trials: locks, Command: again}
				ahead := matrix.Cell{Strategy: s.name, Fault: "client clock ahead", Where: "redis-server", Trials: locks, Command: again}
				for i := range locks {
					key := fmt.Sprintf("%s, %d", t.Name(), i)
					for range s.beside {
						for _, key := range []string{key + ", back", key + ", ahead"} {
							if _, err := beside.Lock(t.Context(), key, locker.WithWait(patience)); err != nil {
								t.Fatal(err)
							}
						}
					}
					if setBack(t, ours, theirs, key+", back") {
						back.Violations++
					}
					if setAhead(t, ours, theirs, key+", ahead") {
						ahead.Violations++
					}
				}
				back.Report(t)
				ahead.Report(t)
				for _, c := range []matrix.Cell{back, ahead} {
					if all := c.Violations == locks; all != s.SendsTimes || !all && c.Violations > 0 {
						t.Errorf("%s: two holders in %d of %d; expected in all of them: %v", c.Fault, c.Violations, locks, s.SendsTimes)
					}
				}
			})
		}
	}
}

const setBy = time.Hour

// setBack takes a lock with a clock that is behind, and tells whether another client gets it as
// well.
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

	// The clock jumps back while the lock is held. The lease still ends.
	l, err = ours.TryLock(t.Context(), key+", short", locker.WithTTL(200*time.Millisecond))
	for begun := time.Now(); err != nil; l, err = ours.TryLock(t.Context(), key+", short", locker.WithTTL(200*time.Millisecond)) {
		// on a busy machine an answer may take longer than the lease
		if time.Since(begun) > patience {
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

// setAhead asks for a lock of another holder with a clock that is ahead, and tells whether it is
// granted. Then the clock of the holder jumps ahead.
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
		t.Errorf("ahead: the context of the lock ended with %v", context.Cause(l.Context()))
	}
	if err := l.Extend(t.Context(), ttl); !errors.Is(err, locker.ErrLost) {
		t.Errorf("ahead: Extend = %v", err)
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("ahead: Unlock = %v", err)
	}
	// long before the end of the lease
	next, err := theirs.Lock(t.Context(), key, locker.WithWait(patience))
	if err != nil {
		t.Errorf("ahead: after the loss: %v", err)
		return two
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	return two
}

// A clocked is a Client with its own wall clock.
type clocked struct {
	*locker.Client
	clock *wallclock.Clock
}

func clockedClient(
	t *testing.T, s strategy, build func([]*redisstore.Store) (locker.Locker, error), lib library, servers []*redistest.Server,
) *clocked {
	var stores []*redisstore.Store
	for _, server := range servers[:s.nodes] {
		stores = append(stores, lib.dial(t, server.Addr(), s.options...).store)
	}
	clock := new(wallclock.Clock)
	l, err := build(stores)
	if s.SendsTimes {
		l = legacy.GetSet(clockedStore{stores[0], clock})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &clocked{locker.New(clockedLocker{l, clock}, locker.WithTTL(ttl), locker.WithoutRenewal()), clock}
}

// isGranted asks for a lock that another has. It does not release a grant. On a busy machine nodes
// may be too slow for a quorum, so it asks again.
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
