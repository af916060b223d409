package locker_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestUnlockWorksWhateverBecameOfItsCtx(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for name, unlock := range map[string]func(l *locker.Lock) error{
			"a ctx that is done":     func(l *locker.Lock) error { return l.Unlock(done(t)) },
			"a ctx that can't end":   func(l *locker.Lock) error { return l.Unlock(context.Background()) },
			"the lock's own context": func(l *locker.Lock) error { return l.Unlock(l.Context()) },
			"a child of the lock's":  func(l *locker.Lock) error { return l.Unlock(context.WithValue(l.Context(), new(int), 1)) },
			"a child that is done too": func(l *locker.Lock) error {
				ctx, cancel := context.WithCancel(l.Context())
				cancel()
				return l.Unlock(ctx)
			},
		} {
			l := mustLock(t, c, "key")
			if err := unlock(l); err != nil {
				t.Errorf("%s: Unlock = %v", name, err)
			}
			s.mustBeFree(t, "key")
			mustMatch(t, context.Cause(l.Context()), locker.ErrReleased)
		}
	})
}

func TestUnlockReturnsWithItsCtxAndTheReleaseGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for name, w := range map[string]struct {
			ctx   context.Context
			takes time.Duration
			match error
		}{
			"deadline": {nil, 300 * time.Millisecond, context.DeadlineExceeded},
			"done":     {done(t), time.Second, context.Canceled},
		} {
			l := mustLock(t, c, "key")
			s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
			ctx := w.ctx
			if ctx == nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(t.Context(), w.takes)
				defer cancel()
			}
			began := time.Now()
			err := l.Unlock(ctx)
			mustMatch(t, err, w.match)
			mustNotMatch(t, err, locker.ErrLost)
			if took := time.Since(began); took != w.takes {
				t.Errorf("%s: Unlock took %v", name, took)
			}
			s.faults.Clear()
			if err := l.Unlock(t.Context()); err != nil { // it waits for the same release
				t.Errorf("%s: second Unlock = %v", name, err)
			}
			s.mustBeFree(t, "key")
		}
	})
}

// After the maximum hold, the lease is kept until Unlock, which sends the Release.
func TestUnlockTellsALossWhileTheReleaseOfWhatIsLeftHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		l := mustLock(t, locker.New(s, locker.WithTTL(30*time.Second), locker.WithMaxHold(5*time.Second)), "key")
		s.onRelease = func(context.Context) error { time.Sleep(3 * time.Second); return errors.New("dead") }
		time.Sleep(6 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for call, ctx := range map[string]context.Context{"the first": ctx, "another": ctx} {
			err := l.Unlock(ctx)
			var lost *locker.LostError
			if !errors.As(err, &lost) || lost.Reason != locker.LostMaxHold {
				t.Errorf("%s Unlock while the Release hangs = %v; want the loss", call, err)
			}
		}
		s.mu.Lock()
		if len(s.releases) == 0 {
			t.Error("no Release was sent, so the test shows nothing")
		}
		s.mu.Unlock()
		time.Sleep(time.Hour) // until the Client gives it up
	})
}

func TestUnlockTriesUntilTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(5*time.Second))
		end := l.Lease().Expires
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := l.Unlock(ctx)
		mustMatch(t, err, backendtest.ErrInjected)
		mustNotMatch(t, err, locker.ErrLost)
		if now := time.Now(); now.Sub(end).Abs() > time.Second {
			t.Errorf("Unlock returned at %v, the lease ended at %v", now, end)
		}
		if _, _, releases, _ := s.asked(); releases < 5 || releases > 30 {
			t.Errorf("%d releases", releases)
		}
	})
}

// Some recipes store a value without expiry, such as a bit. Without this it would stay for ever.
func TestAReleaseWithoutAnswerIsCleanedUpAfterTheEndOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Second), locker.WithoutRenewal())
		end := l.Lease().Expires
		var released atomic.Int32
		s.onRelease = func(ctx context.Context) error {
			if time.Now().Before(end.Add(200 * time.Millisecond)) {
				return backendtest.ErrInjected
			}
			released.Add(1)
			return ctx.Err()
		}
		time.Sleep(time.Until(end) - time.Millisecond)
		err := l.Unlock(t.Context())
		mustMatch(t, err, backendtest.ErrInjected)
		if err := c.Drain(t.Context()); err != nil || time.Now().After(end.Add(150*time.Millisecond)) {
			t.Errorf("Drain = %v, %v after the end of the lease", err, time.Since(end))
		}
		time.Sleep(time.Second)
		if n := released.Load(); n != 1 {
			t.Errorf("released %d times after the end of the lease; want once", n)
		}
	})
}

// A program that holds many locks unlocks them all while the server is dead.
func TestHooksOfUnconfirmedReleasesAreCalledByFewGoroutines(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		var mu sync.Mutex
		now, most, called := 0, 0, 0
		locks := locker.New(s, locker.WithTTL(10*time.Second), locker.WithMiddleware(onEnd(func(contract.Lease, error) {
			mu.Lock()
			now, called = now+1, called+1
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond) // a hook may take long
			mu.Lock()
			now--
			mu.Unlock()
		})))
		var held []*locker.Lock
		for i := range n {
			held = append(held, mustLock(t, locks, fmt.Sprint(i)))
		}
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		for _, l := range held {
			go func() { _ = l.Unlock(context.Background()) }()
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		before := goroutines()
		time.Sleep(2 * time.Second)
		after := goroutines()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most > 8 || after > before+100 || called != n {
			t.Errorf("%d goroutines before the leases end, %d after; %d hooks at once, %d in all", before, after, most, called)
		}
	})
}

// unlocks are the two ways to release a lock. Neither may wait for ever.
var unlocks = map[string]func(c *locker.Client, work func()) error{
	"Unlock": func(c *locker.Client, work func()) error {
		l, err := c.Lock(context.Background(), "key")
		if err != nil {
			return err
		}
		work()
		return l.Unlock(context.Background())
	},
	"Do": func(c *locker.Client, work func()) error {
		return c.Do(context.Background(), "key", func(context.Context, *locker.Lock) error { work(); return nil })
	},
}

func TestUnlockUnderBackgroundReturnsWithinThreeSeconds(t *testing.T) {
	faults := map[string]struct {
		fault backendtest.Fault
		cause string
	}{
		"the server hangs":                   {backendtest.Hang, context.DeadlineExceeded.Error()},
		"the client is closed":               {backendtest.Fail, backendtest.ErrInjected.Error()},
		"the client library ignores its ctx": {nil, "the locker did not answer"},
	}
	for how, unlock := range unlocks {
		for name, w := range faults {
			t.Run(how+" when "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
					stuck, fault := make(chan struct{}), w.fault
					if fault == nil {
						fault = backendtest.Stall(stuck, backendtest.Fail)
						s.faults.Set(backendtest.DeleteIf, fault)
						// After one call past its deadline, the Client makes the next on
						// another goroutine.
						other := mustLock(t, c, "other")
						go func() { _ = other.Unlock(context.Background()) }()
						time.Sleep(1500 * time.Millisecond)
					}
					var ends string
					began := time.Now()
					err := unlock(c, func() {
						ends = timeOfDay(time.Now().Add(10 * time.Second))
						s.faults.Set(backendtest.DeleteIf, fault)
					})
					if took := time.Since(began); took != 3*time.Second {
						t.Errorf("it took %v; want 3s", took)
					}
					want := `lockstep: release "key": not confirmed; the lease ends by itself at ` + ends + ": " + w.cause
					if err == nil || err.Error() != want {
						t.Errorf("%v; want\n%s", err, want)
					}
					mustNotMatch(t, err, context.DeadlineExceeded, locker.ErrLost)
					if failed := (*locker.Error)(nil); !errors.As(err, &failed) || failed.Op != "release" {
						t.Errorf("%#v is not an *Error of a release", err)
					}
					s.faults.Clear()
					close(stuck)
					time.Sleep(3 * time.Second) // the release goes on in the background
					s.mustBeFree(t, "key")
				})
			})
		}
	}
}

// The queue of cleanups is full, so the release cannot go on in the background.
func TestAReleaseWithoutRoomInTheCleanupsFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Second))
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		c.FillCleanups(t.Context(), func(context.Context) error { return backendtest.ErrInjected })
		began := time.Now()
		err := l.Unlock(t.Context())
		mustMatch(t, err, backendtest.ErrInjected)
		mustNotMatch(t, err, locker.ErrLost)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "not confirmed; the lease ends by itself at ") || took != 0 {
			t.Errorf("Unlock = %v after %v", err, took)
		}
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("%d releases were sent", releases)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestAReleaseThatHungSaysWhenTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l, ends := mustLock(t, c, "key"), timeOfDay(time.Now().Add(10*time.Second))
		s.faults.Set(backendtest.DeleteIf, backendtest.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err := l.Unlock(ctx)
		want := `lockstep: release "key": not confirmed; the lease ends by itself at ` + ends + ": context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("%v; want\n%s", err, want)
		}
		mustMatch(t, err, context.DeadlineExceeded) // that of the caller's ctx
		s.faults.Clear()
	})
}

// mute does what it is asked for, but its answers get lost.
type mute struct {
	locker.Locker
	lost *atomic.Bool
}

func (d mute) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := d.Locker.Extend(ctx, lease, ttl)
	if d.lost.Load() {
		return lease, errReply
	}
	return extended, err
}

func (d mute) Release(ctx context.Context, lease contract.Lease) error {
	if d.lost.Load() {
		return errReply
	}
	return d.Locker.Release(ctx, lease)
}

var errReply = errors.New("the reply was lost")

// The error of an Unlock says when the lease ends by itself. No later than that another Client has the lock.
func TestTheEndThatUnlockTellsIsThatOfTheStore(t *testing.T) {
	for name, holds := range map[string]func(t *testing.T, l *locker.Lock, lost *atomic.Bool){
		"after renewals without an answer": func(_ *testing.T, _ *locker.Lock, lost *atomic.Bool) {
			lost.Store(true)
			time.Sleep(9 * time.Second)
		},
		"after a longer lease": func(t *testing.T, l *locker.Lock, lost *atomic.Bool) {
			if err := l.Extend(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
			lost.Store(true)
		},
		"after a longer lease without an answer": func(t *testing.T, l *locker.Lock, lost *atomic.Bool) {
			lost.Store(true)
			mustMatch(t, l.Extend(t.Context(), 30*time.Second), errReply)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var lost atomic.Bool
				l := mustLock(t, locker.New(mute{single.New(store), &lost}), "key")
				holds(t, l, &lost)
				err := l.Unlock(t.Context())
				mustMatch(t, err, errReply)
				mustUnlock(t, mustLock(t, locker.New(single.New(store)), "key"))
				had := time.Now()
				said := regexp.MustCompile(`ends by itself at (\d\d:\d\d:\d\d)`).FindStringSubmatch(err.Error())
				least, most := timeOfDay(had.Add(-2*time.Millisecond)), timeOfDay(had.Add(2*time.Second))
				if said == nil || said[1] < least || said[1] > most {
					t.Errorf("%v; another Client had the lock at %v", err, had)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A later Release was not sent. The first was sent, and may have been done: its error says more.
func TestAnUnlockThatIsNotConfirmedHasTheErrorOfTheReleaseThatWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l, sent := mustLock(t, c, "key"), false
		s.faults.Set(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error {
			if !sent {
				sent = true
				return backendtest.ErrInjected
			}
			return unsent{}
		})
		if err := l.Unlock(context.Background()); !errors.Is(err, backendtest.ErrInjected) {
			t.Errorf("Unlock = %v", err)
		}
		s.faults.Clear()
	})
}

// timeOfDay is at, rounded up to full seconds.
func timeOfDay(at time.Time) string {
	if full := at.Truncate(time.Second); !full.Equal(at) {
		at = full.Add(time.Second)
	}
	return at.Local().Format("15:04:05")
}

func TestUnlockReturnsAPermanentErrorAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Second))
		s.faults.Set(backendtest.DeleteIf, backendtest.Permanent)
		began := time.Now()
		err := l.Unlock(t.Context())
		var r interface{ Permanent() bool }
		if !errors.As(err, &r) || !r.Permanent() || time.Since(began) != 0 {
			t.Errorf("Unlock = %v after %v", err, time.Since(began))
		}
	})
}

// The second Release finds nothing, since the first has released the lock. Why the store has nothing does not
// matter then.
func TestAReleaseWithoutAnAnswerIsNoLossWhateverTheStoreTellsOfTheNextOne(t *testing.T) {
	for name, cause := range map[string]error{
		"nothing": nil, "a permanent cause": outcome.AsPermanent(errors.New("moved")), "an unsent one": outcome.AsUnsent(errors.New("busy")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				l := mustLock(t, c, "key")
				sent := 0
				s.onRelease = func(context.Context) error {
					if sent++; sent == 1 {
						return errors.New("no answer")
					}
					return &locker.LostError{Key: "key", Reason: locker.LostStolen, Err: cause}
				}
				if err := l.Unlock(t.Context()); err != nil || sent != 2 {
					t.Errorf("Unlock = %v after %d Releases; want nil after 2", err, sent)
				}
			})
		})
	}
}

func TestAReleaseThatHangsIsSentAgainAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		stuck := make(chan struct{})
		s.faults.Once(backendtest.DeleteIf, backendtest.Stall(stuck, backendtest.Fail)) // ignores its ctx
		l := mustLock(t, c, "key")
		began := time.Now()
		mustUnlock(t, l)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Unlock took %v; want 1s", took)
		}
		s.mustBeFree(t, "key")
		close(stuck)
	})
}

func TestAReleaseThatHangsIsSentAgainAfterASecondBesideLocksThatAreDueLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		stuck := make(chan struct{})
		other := mustLock(t, c, "other", locker.WithTTL(6*time.Second)) // renewed after 2 s
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute))
		s.faults.Once(backendtest.DeleteIf, backendtest.Stall(stuck, backendtest.Fail))
		began := time.Now()
		mustUnlock(t, l)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Unlock took %v; want 1s", took)
		}
		close(stuck)
		mustUnlock(t, other)
	})
}

func TestAReleaseThatHangsIsNotSentAgainForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		stuck := make(chan struct{})
		s.faults.Set(backendtest.DeleteIf, backendtest.Stall(stuck, backendtest.Fail)) // every connection, ignoring every ctx
		l := mustLock(t, c, "key", locker.WithTTL(10*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var failed *locker.Error
		if err := l.Unlock(ctx); !errors.As(err, &failed) || failed.Op != "release" || ctx.Err() != nil {
			t.Errorf("Unlock = %v; want it to give up when the lease has ended", err)
		}
		if _, _, releases, _ := s.asked(); releases < 2 || releases > 9 {
			t.Errorf("%d releases were sent; want the first and a few beside it", releases)
		}
		close(stuck)
	})
}

func TestAReleaseThatFollowsItsCtxIsSentAgainAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for _, ctx := range []context.Context{t.Context(), context.Background()} {
			s.faults.Once(backendtest.DeleteIf, backendtest.Hang)
			l := mustLock(t, c, "key")
			began := time.Now()
			if err := l.Unlock(ctx); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			if took := time.Since(began); took < time.Second || took > 1100*time.Millisecond {
				t.Errorf("Unlock took %v; want 1s", took)
			}
			s.mustBeFree(t, "key")
		}
	})
}

func TestALostReplyToReleaseCountsAsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for _, fault := range []backendtest.Fault{backendtest.LoseReply, backendtest.LoseReplyHang} {
			s.faults.Once(backendtest.DeleteIf, fault)
			l := mustLock(t, c, "key")
			mustUnlock(t, l)
			s.mustBeFree(t, "key")
		}
	})
}

func TestASecondUnlockReturnsTheResultOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		s.store.Delete("key")
		first := l.Unlock(t.Context())
		mustMatch(t, first, locker.ErrLost)
		next := mustLock(t, c, "key")
		if second := l.Unlock(t.Context()); second != first {
			t.Errorf("Unlock = %v, then %v", first, second)
		}
		if _, _, ok := s.store.Get("key"); !ok {
			t.Error("the second Unlock removed the next holder's key")
		}
		mustUnlock(t, next)
		if second := next.Unlock(done(t)); second != nil {
			t.Errorf("Unlock = nil, then %v", second)
		}
	})
}

func TestManyUnlocksAtOnceReleaseOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.DeleteIf, backendtest.Late(time.Second/2))
		l := mustLock(t, c, "key")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = context.Background()
				}
				if err := l.Unlock(ctx); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			})
		}
		wg.Wait()
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("%d releases", releases)
		}
	})
}

func TestUnlockEndsTheContextBeforeItSendsRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		s.faults.Set(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
			if l.Context().Err() == nil {
				t.Error("the context has not ended when Release is sent")
			}
			if ctx.Err() != nil {
				t.Error("the release runs under a ctx that is done")
			}
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 3*time.Second {
				t.Error("the release has no deadline of three seconds")
			}
			return execute(ctx)
		})
		mustUnlock(t, l)
	})
}

func TestReleaseWaitsForAnExtensionUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var order []string
		s.faults.Set(backendtest.ExpireIf, func(ctx context.Context, execute func(context.Context) error) error {
			<-ctx.Done() // follows its ctx, and returns a little later
			time.Sleep(50 * time.Millisecond)
			order = append(order, "extend")
			return ctx.Err()
		})
		s.faults.Set(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
			order = append(order, "release")
			return execute(ctx)
		})
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		time.Sleep(1100 * time.Millisecond)
		mustUnlock(t, l)
		if len(order) != 2 || order[0] != "extend" {
			t.Errorf("order of the calls: %v; want the extension first", order)
		}
	})
}

func TestDoReleasesHoweverTheWorkEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		failed := errors.New("failed")
		if err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error { return nil }); err != nil {
			t.Errorf("Do = %v", err)
		}
		s.mustBeFree(t, "key")
		if err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error { return failed }); err != failed {
			t.Errorf("Do = %v", err)
		}
		s.mustBeFree(t, "key")
		func() {
			defer func() {
				if r := recover(); r != "panic" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error { panic("panic") })
		}()
		s.mustBeFree(t, "key")
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		s.mustBeFree(t, "key")
	})
}

func TestDoWrapsTheErrorOfTheWorkBeforeThatOfTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		failed := errors.New("failed")
		err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			s.store.Delete("key")
			return failed
		})
		mustMatch(t, err, failed, locker.ErrLost)
		if joined, ok := err.(interface{ Unwrap() []error }); !ok || joined.Unwrap()[0] != failed {
			t.Errorf("Do = %v", err)
		}
		err = c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			s.store.Delete("key")
			return nil
		})
		mustMatch(t, err, locker.ErrLost)
		err = c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			s.store.Delete("key")
			<-ctx.Done()
			return context.Cause(ctx) // Unlock returns the same
		})
		if lost := (*locker.LostError)(nil); !errors.As(err, &lost) || err.Error() != lost.Error() {
			t.Errorf("Do = %v", err)
		}
	})
}

func TestDoGivesTheWorkTheContextOfTheHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			if ctx != l.Context() || l.Key() != "key" || l.Lease().Key != "key" || l.Fence() != 0 {
				t.Errorf("work got a ctx or a lock of another hold: %v", l.Lease())
			}
			s.store.Delete("key")
			<-ctx.Done()
			return context.Cause(ctx)
		}, locker.WithTTL(3*time.Second))
		mustMatch(t, err, locker.ErrLost)
	})
}

func TestDoUnderACtxThatEndsReleases(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Do(ctx, "key", func(ctx context.Context, l *locker.Lock) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err != context.DeadlineExceeded {
			t.Errorf("Do = %v", err)
		}
		s.mustBeFree(t, "key")
	})
}

func TestLockReturnsNoLockIfCtxEndsDuringTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			cancel()
			synctest.Wait() // so that Lock sees the end of ctx first
			return lease, err
		}
		_, err := c.Lock(ctx, "key", locker.WithTTL(time.Hour))
		mustMatch(t, err, context.Canceled)
		time.Sleep(time.Second)
		s.mustBeFree(t, "key")
	})
}

// unsent is the error of a call that was not sent.
type unsent struct{}

func (unsent) Error() string { return "no connection" }
func (unsent) Unsent() bool  { return true }

func TestAReleaseThatWasNeverSentDoesNotExcuseAStolenLock(t *testing.T) {
	for name, w := range map[string]struct {
		first error
		lost  bool
	}{
		"never sent":             {unsent{}, true},
		"sent, and not answered": {backendtest.ErrInjected, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				l := mustLock(t, c, "key")
				s.store.Set("key", "thief", time.Minute)
				s.faults.Once(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error { return w.first })
				err := l.Unlock(context.Background())
				if errors.Is(err, locker.ErrLost) != w.lost || !w.lost && err != nil {
					t.Errorf("Unlock = %v; want a loss: %v", err, w.lost)
				}
			})
		})
	}
}

// The hold was lost by the maximum hold, and the Locker ends the goroutine of the release.
func TestALockerThatEndsTheGoroutineOfALateReleaseBlocksNoUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		c := locker.New(s, locker.WithMaxHold(2*time.Second))
		l := mustLock(t, c, "key")
		s.onRelease = func(context.Context) error { runtime.Goexit(); return nil }
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		mustMatch(t, l.Unlock(ctx), locker.ErrLost)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Unlock took %v; want 1s", took)
		}
		if err := c.Drain(ctx); err != nil {
			t.Errorf("Drain = %v", err)
		}
	})
}

// What a Release does after the end of the lease, it may do to the next holder.
func TestTheFirstReleaseEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Second), locker.WithoutRenewal())
		expires := l.Lease().Expires
		time.Sleep(800 * time.Millisecond)
		s.onRelease = func(ctx context.Context) error {
			s.mu.Lock()
			s.onRelease = nil
			s.mu.Unlock()
			if deadline, ok := ctx.Deadline(); !ok || deadline.After(expires) {
				t.Errorf("the deadline of the first Release is %v after Expires", deadline.Sub(expires))
			}
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		_ = l.Unlock(t.Context())
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
	})
}
