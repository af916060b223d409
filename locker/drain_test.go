package locker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// inBackground is a Locker that goes on for a while after one of its calls.
type inBackground struct {
	locker.Locker
	call string // empty: none
	skip int    // so many of these calls come before
	ends time.Time
}

const goesOn = 3 * time.Second

// Prompt tells that its calls end by themselves: see spy.
func (b *inBackground) Prompt() bool { return true }

func (b *inBackground) after(ctx context.Context, call string) {
	if call != b.call {
		return
	}
	if b.skip--; b.skip >= 0 {
		return
	}
	b.call, b.ends = "", time.Now().Add(goesOn)
	done := contract.DelayDrain(ctx)
	time.AfterFunc(goesOn, done)
}

func (b *inBackground) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	b.after(ctx, "Acquire")
	return b.Locker.Acquire(ctx, req)
}

func (b *inBackground) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	b.after(ctx, "Transfer")
	return b.Locker.Transfer(ctx, from, req)
}

func (b *inBackground) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	b.after(ctx, "Extend")
	return b.Locker.Extend(ctx, lease, ttl)
}

func (b *inBackground) Release(ctx context.Context, lease contract.Lease) error {
	b.after(ctx, "Release")
	return b.Locker.Release(ctx, lease)
}

func TestDrainWaitsForWhatAStrategyDoesInTheBackground(t *testing.T) {
	type key struct{}
	for name, c := range map[string]struct {
		call string
		make func(t *testing.T, b *inBackground, s *spy, c *locker.Client)
	}{
		"of an attempt": {"Acquire", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			mustUnlock(t, mustLock(t, c, "key"))
		}},
		"of an attempt on the goroutine of its caller": {"Acquire", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			l, err := c.Lock(context.Background(), "key")
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, l)
		}},
		"of one whose ctx has values": {"Acquire", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			l, err := c.Lock(context.WithValue(context.Background(), key{}, true), "key")
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, l)
		}},
		"of a transfer": {"Transfer", func(t *testing.T, b *inBackground, _ *spy, c *locker.Client) {
			b.call = "" // Lock.Transfer asks whether the strategy can do it
			ticket, err := mustLock(t, c, "key").Transfer(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			b.call = "Transfer"
			l, err := c.Resume(t.Context(), ticket)
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, l)
		}},
		"of an extension": {"Extend", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			if err := l.Extend(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, l)
		}},
		"of a renewal": {"Extend", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			time.Sleep(locker.DefaultTTL / 3)
			synctest.Wait()
			mustUnlock(t, l)
		}},
		"of a release": {"Release", func(t *testing.T, _ *inBackground, _ *spy, c *locker.Client) {
			mustUnlock(t, mustLock(t, c, "key"))
		}},
		"of a release that is repeated": {"Release", func(t *testing.T, b *inBackground, s *spy, c *locker.Client) {
			b.skip = 1
			s.faults.Once(backendtest.DeleteIf, backendtest.Fail)
			mustUnlock(t, mustLock(t, c, "key"))
		}},
		"of the release of a grant that nobody wants": {"Release", func(t *testing.T, _ *inBackground, s *spy, c *locker.Client) {
			s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				defer time.Sleep(time.Millisecond)
				return next()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
			defer cancel()
			_, err := c.TryLock(ctx, "key")
			mustMatch(t, err, context.DeadlineExceeded)
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}},
		"of the release of a lost lock": {"Release", func(t *testing.T, _ *inBackground, s *spy, c *locker.Client) {
			s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
			l := mustLock(t, c, "key")
			<-l.Context().Done()
			synctest.Wait()
		}},
	} {
		through := func(l locker.Locker) locker.Locker { return struct{ locker.Locker }{l} }
		for _, between := range [][]contract.Middleware{nil, {through}} {
			t.Run(fmt.Sprintf("%s, middleware %v", name, between != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSpy()
					b := &inBackground{Locker: s, call: c.call}
					locks, others := locker.New(contract.Wrap(b, between...)), locker.New(b)
					c.make(t, b, s, locks)
					if err := others.Drain(t.Context()); err != nil || b.ends.IsZero() || !time.Now().Before(b.ends) {
						t.Errorf("Drain of another Client = %v; it goes on until %v", err, b.ends)
					}
					if err := locks.Drain(t.Context()); err != nil || time.Now().Before(b.ends) {
						t.Errorf("Drain = %v, %v too early", err, time.Until(b.ends))
					}
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// Middleware may wrap a Locker for good: what it does in the background is waited for as well.
func TestDrainWaitsForWhatMiddlewareDoesInTheBackground(t *testing.T) {
	for _, call := range []string{"Acquire", "Extend", "Release"} {
		synctest.Test(t, func(t *testing.T) {
			b := &inBackground{call: call}
			c := locker.New(newSpy(), locker.WithMiddleware(func(l locker.Locker) locker.Locker {
				b.Locker = l
				return b
			}))
			l := mustLock(t, c, "key")
			if err := l.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			mustUnlock(t, l)
			if err := c.Drain(t.Context()); err != nil || b.ends.IsZero() || time.Now().Before(b.ends) {
				t.Errorf("%s: Drain = %v; it goes on until %v", call, err, b.ends)
			}
		})
	}
}

// The store answers no release for a while.
func TestDrainWaitsUntilAClientHasCleanedUp(t *testing.T) {
	const down = 5 * time.Second
	for name, leave := range map[string]func(t *testing.T, s *spy, c *locker.Client){
		"a grant whose caller has left": func(t *testing.T, s *spy, c *locker.Client) {
			s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				defer time.Sleep(time.Millisecond)
				return next()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
			defer cancel()
			_, err := c.TryLock(ctx, "key")
			mustMatch(t, err, context.DeadlineExceeded)
		},
		"a grant that has ended": func(t *testing.T, s *spy, c *locker.Client) {
			s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				lease, err := next()
				time.Sleep(time.Until(lease.Expires))
				return lease, err
			}
			if _, err := c.TryLock(t.Context(), "key"); err == nil {
				t.Error("TryLock returns a lock whose lease has ended")
			}
		},
		"a lost lock": func(t *testing.T, s *spy, c *locker.Client) {
			s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
			<-mustLock(t, c, "key").Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
				leave(t, s, c)
				began := time.Now()
				time.AfterFunc(down, s.faults.Clear)
				if err := c.Drain(t.Context()); err != nil || time.Since(began) < down {
					t.Errorf("Drain = %v after %v", err, time.Since(began))
				}
				if _, _, releases, _ := s.asked(); releases < 2 {
					t.Errorf("%d releases; want one that failed, and another", releases)
				}
				s.mustBeFree(t, "key")
			})
		})
	}
}

// The first call of done counts, and done without a Client does nothing.
func TestDoneMayBeCalledTwice(t *testing.T) {
	contract.DelayDrain(t.Context())()
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var dones []func()
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			dones = append(dones, contract.DelayDrain(ctx), contract.DelayDrain(ctx))
			return next()
		}
		mustUnlock(t, mustLock(t, c, "key"))
		dones[0]()
		dones[0]()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v; it must wait for the second", err)
		}
		dones[1]()
		if err := c.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
