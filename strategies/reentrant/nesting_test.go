package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const long = 10 * time.Minute // a ttl that does not end during a test

func as(ctx context.Context, owner string) context.Context {
	return locker.ContextWithOwner(ctx, owner)
}

// lock acquires key. The owner must then have as many holds as holds.
func lock(ctx context.Context, t *testing.T, c *locker.Client, holds int, opts ...locker.Option) *locker.Lock {
	t.Helper()
	l, err := c.TryLock(ctx, "key", opts...)
	if err != nil {
		t.Fatalf("TryLock = %v", err)
	}
	t.Cleanup(func() { l.Unlock(context.Background()) }) // in case the test fails: no hold may outlive a bubble
	if got := l.Lease().Holds; got != holds {
		t.Errorf("granted as hold %d; want %d", got, holds)
	}
	return l
}

func unlock(t *testing.T, locks ...*locker.Lock) {
	t.Helper()
	for _, l := range locks {
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}

func wantHeld(ctx context.Context, t *testing.T, c *locker.Client) {
	t.Helper()
	if _, err := c.TryLock(ctx, "key"); !errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrForeignKey) {
		t.Errorf("TryLock = %v; want it held", err)
	}
}

func TestTheOwnerIsGrantedTheLockAgainAndNobodyElse(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		one, another := locker.New(reentrant.New(store), locker.WithTTL(long)), locker.New(reentrant.New(store), locker.WithTTL(long))
		job := as(t.Context(), "job")
		held := []*locker.Lock{lock(job, t, one, 1), lock(job, t, one, 2), lock(job, t, another, 3)}
		for _, c := range []*locker.Client{one, another} {
			wantHeld(as(t.Context(), "another job"), t, c)
			wantHeld(as(t.Context(), "jo"), t, c)
			wantHeld(t.Context(), t, c)
		}
		held = append(held, lock(job, t, one, 4))
		if held[0].Lease().Holds != 1 || held[0].Lease().Owner != "job" {
			t.Errorf("the first lease is of hold %d of %q", held[0].Lease().Holds, held[0].Lease().Owner)
		}
		unlock(t, held...)
		unlock(t, lock(as(t.Context(), "another job"), t, one, 1))
	})
}

func TestWithoutAnOwnerItIsAPlainExclusiveLock(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long))
		l := lock(t.Context(), t, c, 1)
		wantHeld(t.Context(), t, c)
		wantHeld(as(t.Context(), ""), t, c)
		wantHeld(as(t.Context(), "job"), t, c)
		unlock(t, l)
		unlock(t, lock(t.Context(), t, c, 1))
	})
}

func TestTheLockIsFreeWhenTheLastHoldIsReleasedInWhateverOrder(t *testing.T) {
	for name, order := range map[string][]int{"inner first": {2, 1, 0}, "outer first": {0, 1, 2}, "middle first": {1, 2, 0}} {
		t.Run(name, func(t *testing.T) {
			beneath.Each(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
				c := locker.New(reentrant.New(store), locker.WithTTL(long))
				job := as(t.Context(), "job")
				held := []*locker.Lock{lock(job, t, c, 1), lock(job, t, c, 2), lock(job, t, c, 3)}
				for n, i := range order {
					wantHeld(as(t.Context(), "another job"), t, c)
					for _, left := range order[n:] {
						if err := held[left].Extend(t.Context(), long); err != nil {
							t.Errorf("hold %d: Extend = %v", left, err)
						}
					}
					unlock(t, held[i])
					if again := held[i].Unlock(t.Context()); again != nil { // the result of the first Unlock, and nothing is sent
						t.Errorf("a second Unlock = %v", again)
					}
				}
				if outside.Holds("key") {
					t.Error("something is left under the key")
				}
				unlock(t, lock(as(t.Context(), "another job"), t, c, 1))
			})
		})
	}
}

// A client library may send a command again; so may a caller that has lost the reply.
func TestAHoldThatIsEnteredTwiceIsOneHold(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		faults := new(backendtest.Faults)
		l := reentrant.New(faults.Ordered(store))
		outer, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: "outer", Owner: "job", TTL: long})
		if err != nil {
			t.Fatal(err)
		}
		faults.Once(backendtest.Enter, func(ctx context.Context, execute func(context.Context) error) error {
			_ = execute(ctx) // the reply is lost
			return execute(ctx)
		})
		inner, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: "inner", Owner: "job", TTL: long})
		if err != nil || inner.Holds != 2 {
			t.Fatalf("Acquire whose first reply is lost = %v of %d holds; want 2", err, inner.Holds)
		}
		again, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: "inner", Owner: "job", TTL: long})
		if err != nil || again.Holds != 2 {
			t.Fatalf("a retransmission = %v of %d holds; want 2", err, again.Holds)
		}
		for _, lease := range []contract.Lease{inner, outer} {
			if !outside.Holds("key") {
				t.Errorf("the key is free before %q is released", lease.Token)
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Errorf("Release of %q = %v", lease.Token, err)
			}
			if err := l.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
				t.Errorf("a second Release of %q = %v; want ErrLost", lease.Token, err)
			}
		}
		if outside.Holds("key") {
			t.Error("something is left under the key")
		}
	})
}

func TestAnAttemptWithAnUnknownOutcomeLeavesNoHoldAndTheOthersAlone(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"lost request": backendtest.Fail, "lost reply": backendtest.LoseReply, "late request": backendtest.Ghost(30 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
				faults := new(backendtest.Faults)
				c := locker.New(reentrant.New(faults.Ordered(store)), locker.WithTTL(long))
				job := as(t.Context(), "job")
				outer := lock(job, t, c, 1)
				faults.Once(backendtest.Enter, fault)
				if _, err := c.TryLock(job, "key"); err == nil || errors.Is(err, locker.ErrHeld) {
					t.Errorf("TryLock = %v", err)
				}
				time.Sleep(5 * time.Second) // by now all cleanups are done
				unlock(t, lock(job, t, c, 2), outer)
				if outside.Holds("key") {
					t.Error("something is left under the key")
				}
			})
		})
	}
}

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestEveryHoldOfALockThatIsTakenAwayIsLost(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long))
		job := as(t.Context(), "job")
		outer, inner := lock(job, t, c, 1), lock(job, t, c, 2)
		outside.Delete("key")
		next := lock(as(t.Context(), "another job"), t, c, 1)
		if err := outer.Extend(t.Context(), long); !errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Extend = %v; want ErrLost", err)
		}
		if cause := context.Cause(outer.Context()); !errors.Is(cause, locker.ErrLost) {
			t.Errorf("the outer context ended with %v; want ErrLost", cause)
		}
		if err := inner.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock = %v; want ErrLost", err)
		}
		wantHeld(job, t, c)
		unlock(t, next)
	})
}

func TestAKeyIsALockOfOneStrategyOnly(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		for _, c := range [][2]*locker.Client{
			{locker.New(reentrant.New(store)), locker.New(single.New(store))},
			{locker.New(single.New(store)), locker.New(reentrant.New(store))},
		} {
			l, err := c[0].TryLock(as(t.Context(), "job"), "key", locker.WithTTL(long))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c[1].Lock(as(t.Context(), "job"), "key")
			if !errors.Is(err, locker.ErrForeignKey) || errors.Is(err, locker.ErrHeld) {
				t.Errorf("Lock by the other strategy = %v; want ErrForeignKey", err)
			}
			if err := l.Extend(t.Context(), long); err != nil {
				t.Errorf("Extend = %v", err)
			}
			unlock(t, l)
		}
	})
}

// Transfer gives away no hold that has an owner, and the store moves a hold as it is. So the resumed hold has
// none either, and a Lock inside it must not wait for it.
func TestAResumedHoldHasNoOwner(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store))
		ticket, err := lock(t.Context(), t, c, 1).Transfer(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		resumed, err := c.Resume(as(t.Context(), "job"), ticket)
		if err != nil {
			t.Fatal(err)
		}
		if owner := resumed.Lease().Owner; owner != "" {
			t.Errorf("the resumed hold has the owner %q", owner)
		}
		_, err = c.Lock(resumed.Context(), "key")
		if failed := new(locker.Error); !errors.As(err, &failed) || failed.ErrorType() != "deadlock" {
			t.Errorf("a Lock inside the resumed hold = %v; want a deadlock", err)
		}
		unlock(t, resumed)
	})
}
