package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// elector is gocron.Elector of github.com/go-co-op/gocron/v2.
type elector interface {
	IsLeader(ctx context.Context) error
}

var _ elector = (*election.Election)(nil)

func TestALeaderThatResignsQueuesBehindTheOthers(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		for _, name := range []string{"a", "b", "c"} {
			s.start(name)
		}
		defer s.guard()()
		for i := range 7 {
			leader := s.all[i%3]
			s.within(moment, "the next in turn leads", leader.leads)
			time.Sleep(time.Minute)
			leader.returns(nil)
		}
		time.Sleep(moment)
		if order := s.order(); order != "abcabcab" {
			t.Errorf("they led in the order %q", order)
		}
		for _, term := range s.spells() {
			if (term.number > 0) != strings.HasSuffix(t.Name(), "fenced") {
				t.Errorf("a term has the number %d", term.number)
			}
		}
	})
}

// The wake-up of the next candidate in turn, and its attempt, are all that a resignation costs.
func TestAResignationCostsOneWakeUpAndOneAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		others := []*candidate{s.start("b"), s.start("c"), s.start("d")}
		attempts := func() (n int) {
			for _, c := range others {
				n += c.faults.Calls(backendtest.SetNX) + c.faults.Calls(backendtest.SetNXNumbered)
			}
			return n
		}
		time.Sleep(time.Minute)
		before := attempts()
		resigned := time.Now()
		a.returns(nil)
		synctest.Wait()
		if !others[0].leads() || time.Since(resigned) > 0 {
			t.Errorf("%v after the resignation, they led in the order %q", time.Since(resigned), s.order())
		}
		if n := attempts() - before; n != 1 {
			t.Errorf("the resignation cost %d attempts of the others; want 1", n)
		}
	})
}

// A limit of the Client must not keep a candidate out of the queue.
func TestTheAttemptsOfACampaignAreNotLimited(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		b := s.start("b", locker.WithAttempts(1))
		time.Sleep(time.Hour)
		a.returns(errEnough)
		s.within(10*time.Millisecond, "b leads", b.leads)
	})
}

func TestWhenALeaderDiesAnotherLeadsWithinTheTTL(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		// The store has the lease of a process that is no more.
		if _, err := locker.New(single.New(s.store), locker.WithoutRenewal()).Lock(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		a := s.start("a")
		s.within(ttl+10*time.Millisecond, "a leads", a.leads)
	})
}

func TestAnErrorOfLeadEndsRun(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a, b := s.start("a"), s.start("b")
		a.returns(errEnough)
		<-a.ended
		if a.err != errEnough {
			t.Errorf("Run = %v", a.err)
		}
		s.within(moment, "the other leads", b.leads)
	})
}

func TestALossIsFollowedByAnotherTerm(t *testing.T) {
	for name, of := range map[string]func(ctx context.Context) error{
		"the error of the ctx":  func(ctx context.Context) error { return fmt.Errorf("row 7: %w", ctx.Err()) },
		"the cause":             context.Cause,
		"nothing":               func(context.Context) error { return nil },
		"what followed from it": func(context.Context) error { return errors.New("fence 1 came after 2") },
	} {
		t.Run(name, func(t *testing.T) {
			playFenced(t, func(t *testing.T, s *stage) {
				a := s.candidate("a")
				var n times
				a.run(func(ctx context.Context, term election.Term) error {
					if n.more() > 1 {
						return a.lead(ctx, term)
					}
					defer a.noted(term)()
					s.store.Set(key, "thief", time.Minute)
					<-ctx.Done()
					mustMatch(t, context.Cause(ctx), locker.ErrLost)
					s.store.Delete(key)
					return of(ctx)
				})
				s.within(ttl+moment, "it leads again", func() bool { return s.order() == "aa" && a.leads() })
			})
		})
	}
}

func TestTheLossOfALockThatLeadTookEndsTheTermOnly(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		a.returns(fmt.Errorf("row 7: %w", &locker.LostError{Key: "other", Reason: locker.LostExpired}))
		s.within(moment, "it leads again", func() bool { return s.order() == "aa" })
	})
}

func TestTheCtxOfRunEndsATerm(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		shutdown := errors.New("shutdown")
		a := s.candidate("a")
		var cause error
		a.run(func(ctx context.Context, term election.Term) error {
			err := a.lead(ctx, term)
			cause = context.Cause(ctx)
			return err
		})
		s.within(moment, "it leads", a.leads)
		a.stop(shutdown)
		<-a.ended
		if cause != shutdown {
			t.Errorf("the ctx of lead has ended with %v", cause)
		}
		mustMatch(t, a.err, context.Canceled, shutdown)
		const want = `lockstep: campaign "billing/leader": context canceled: shutdown`
		if a.err == nil || a.err.Error() != want {
			t.Errorf("Run = %v; want %s", a.err, want)
		}
	})
}

func TestTheCtxOfRunEndsACampaign(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		s.start("a")
		b := s.candidate("b")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		err := b.Run(ctx, b.lead)
		mustMatch(t, err, context.DeadlineExceeded)
		mustNotMatch(t, err, context.Canceled)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Run took %v", took)
		}
		mustMatch(t, b.Run(ctx, b.lead), context.DeadlineExceeded) // it has ended before
	})
}

// A lead may fail on its way out. Its error is not lost.
func TestAnErrorOfLeadStandsBesideTheEndOfTheCtx(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		a.run(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			return errEnough
		})
		s.within(moment, "it leads", a.leads)
		a.stop(nil)
		<-a.ended
		mustMatch(t, a.err, errEnough, context.Canceled)
	})
}

// The others wait until the leader has stopped, however long that takes: client-go releases first.
func TestTheLeaseIsRenewedUntilLeadHasReturned(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		a.run(func(ctx context.Context, term election.Term) error {
			defer a.noted(term)()
			<-ctx.Done()
			mustMatch(t, a.IsLeader(ctx), election.ErrNotLeader, context.Canceled)
			time.Sleep(6 * ttl)
			if n := a.faults.Calls(backendtest.DeleteIf); n > 0 {
				t.Errorf("%d releases were sent before lead had returned", n)
			}
			return nil
		})
		s.within(moment, "a leads", a.leads)
		b := s.start("b")
		a.stop(nil)
		<-a.ended
		s.within(moment, "b leads", b.leads)
		if terms := s.spells(); len(terms) != 2 || terms[1].began.Before(terms[0].ended) {
			t.Errorf("the terms are %+v", terms)
		}
	})
}

// The program ends after Run, and the lock is free.
func TestRunWaitsForTheReleaseWhenItsCtxHasEnded(t *testing.T) {
	for range 20 {
		playFenced(t, func(t *testing.T, s *stage) {
			a := s.start("a")
			a.faults.Once(backendtest.DeleteIf, backendtest.Late(500*time.Millisecond))
			a.stop(nil)
			<-a.ended
			const want = `lockstep: campaign "billing/leader": context canceled`
			if a.err == nil || a.err.Error() != want {
				t.Errorf("Run = %v; want %s", a.err, want)
			}
		})
	}
}

func TestARunWhoseReleaseHasNoAnswerSaysSo(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		a.faults.Set(backendtest.DeleteIf, backendtest.Hang)
		a.stop(nil)
		<-a.ended
		mustMatch(t, a.err, context.Canceled)
		if failure, ok := errors.AsType[*locker.Error](a.err); !ok || failure.Op != "release" {
			t.Errorf("Run = %v", a.err)
		}
	})
}

// The ctx of Run ends after the grant.
func TestLeadIsNotCalledWhenTheCtxOfRunHasEnded(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancel(t.Context())
		a := s.candidate("a", locker.WithMiddleware(func(next locker.Locker) locker.Locker { return onHold{next, cancel} }))
		err := a.Run(ctx, func(context.Context, election.Term) error {
			t.Error("lead was called")
			return nil
		})
		mustMatch(t, err, context.Canceled)
	})
}

// onHold calls then when a hold has begun.
type onHold struct {
	locker.Locker
	then func()
}

func (o onHold) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := o.Locker.Acquire(ctx, req)
	if err != nil {
		return lease, err
	}
	contract.CallOf(ctx).OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
		o.then()
		return ctx, nil
	})
	return lease, nil
}

func TestIsLeaderIsNilWhileLeadRuns(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		mustMatch(t, a.IsLeader(t.Context()), election.ErrNotLeader)
		var left context.Context
		release := make(chan struct{})
		a.faults.Once(backendtest.DeleteIf, backendtest.Stall(release, nil))
		a.run(func(ctx context.Context, term election.Term) error {
			if err := a.IsLeader(ctx); err != nil {
				t.Errorf("IsLeader = %v in lead", err)
			}
			left = ctx
			return a.lead(ctx, term)
		})
		s.within(moment, "it leads", a.leads)
		a.returns(nil)
		synctest.Wait()
		if err := a.IsLeader(t.Context()); err != election.ErrNotLeader { // the release is under way
			t.Errorf("IsLeader = %v when lead has returned", err)
		}
		mustMatch(t, context.Cause(left), locker.ErrReleased)
		close(release)
	})
}

// The process is suspended in lead. Whatever it looks at first must say so, before any other
// goroutine has had its turn.
func TestASuspendedLeaderLearnsOfTheEndAtItsFirstLook(t *testing.T) {
	for name, ended := range map[string]func(a *candidate, ctx context.Context) bool{
		"IsLeader": func(a *candidate, ctx context.Context) bool {
			return errors.Is(a.IsLeader(ctx), locker.ErrLost) && errors.Is(a.IsLeader(ctx), election.ErrNotLeader)
		},
		"Err": func(_ *candidate, ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(_ *candidate, ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"Cause": func(_ *candidate, ctx context.Context) bool { return errors.Is(context.Cause(ctx), locker.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			playFenced(t, func(t *testing.T, s *stage) {
				a := s.candidate("a")
				var n times
				a.run(func(ctx context.Context, term election.Term) error {
					if n.more() > 1 {
						return errEnough
					}
					defer a.noted(term)()
					child, cancel := context.WithCancel(ctx)
					defer cancel()
					a.clock.Jump(2 * ttl)
					if !ended(a, ctx) {
						t.Error("the first look says that the term goes on")
					}
					if child.Err() == nil {
						t.Error("a child of the ctx goes on")
					}
					return ctx.Err()
				})
				<-a.ended
				mustMatch(t, a.err, errEnough)
			})
		})
	}
}

func TestALeadThatPanicsReleasesTheLock(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic(errEnough) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			playFenced(t, func(t *testing.T, s *stage) {
				a := s.candidate("a")
				var all sync.WaitGroup
				var recovered any
				all.Go(func() {
					defer func() { recovered = recover() }()
					_ = a.Run(t.Context(), func(context.Context, election.Term) error { leave(); return nil })
					t.Error("Run has returned")
				})
				all.Wait()
				if name == "panic" && recovered != errEnough {
					t.Errorf("recovered %v", recovered)
				}
				mustMatch(t, a.IsLeader(t.Context()), election.ErrNotLeader)
				if _, _, found := s.store.Get(key); found {
					t.Error("the key is still locked")
				}
				if err := a.Run(t.Context(), func(context.Context, election.Term) error { return errEnough }); err != errEnough {
					t.Errorf("the next Run = %v", err)
				}
			})
		})
	}
}

func TestASecondRunOfOneElectionIsRefused(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		err := a.Run(t.Context(), a.lead)
		mustBePermanent(t, err)
		if want := `lockstep: campaign "billing/leader": another Run of this Election is under way`; err == nil || err.Error() != want {
			t.Errorf("Run = %v; want %s", err, want)
		}
		if !a.leads() {
			t.Error("the first one leads no more")
		}
		a.returns(errEnough)
		<-a.ended
		if err := a.Run(t.Context(), func(context.Context, election.Term) error { return errEnough }); err != errEnough {
			t.Errorf("Run after the first one = %v", err)
		}
	})
}

func TestBadInputFailsBeforeAnythingIsSent(t *testing.T) {
	l, faults := overFenced(memory.New())
	client := locker.New(l)
	stay := func(context.Context, election.Term) error { t.Error("lead was called"); return nil }
	for name, run := range map[string]func() error{
		"the Election is nil":  func() error { return (*election.Election)(nil).Run(t.Context(), stay) },
		"the Election is zero": func() error { return new(election.Election).Run(t.Context(), stay) },
		"the Client is nil":    func() error { return election.New(nil, key).Run(t.Context(), stay) },
		"the key is empty":     func() error { return election.New(client, "").Run(t.Context(), stay) },
		"the key is not UTF-8": func() error { return election.New(client, "\xff").Run(t.Context(), stay) },
		"lead is nil":          func() error { return election.New(client, key).Run(t.Context(), nil) },
		"ctx is nil":           func() error { return election.New(client, key).Run(nil, stay) }, //nolint:staticcheck // it is what is tested
		"an option is nil":     func() error { return election.New(client, key, nil).Run(t.Context(), stay) },
		"the TTL is too short": func() error { return election.New(client, key, locker.WithTTL(1)).Run(t.Context(), stay) },
	} {
		t.Run(name, func(t *testing.T) {
			err := run()
			mustBePermanent(t, err)
			if failure, ok := errors.AsType[*locker.Error](err); !ok || failure.ErrorType() != "invalid" {
				t.Errorf("Run = %v", err)
			}
		})
	}
	if n := faults.Calls(backendtest.All); n > 0 {
		t.Errorf("%d calls were sent", n)
	}
	mustMatch(t, (*election.Election)(nil).IsLeader(t.Context()), election.ErrNotLeader)
	mustMatch(t, new(election.Election).IsLeader(t.Context()), election.ErrNotLeader)
}

func mustBePermanent(t *testing.T, err error) {
	t.Helper()
	var p interface{ Permanent() bool }
	if !errors.As(err, &p) || !p.Permanent() {
		t.Errorf("%v is not permanent", err)
	}
}

func TestRunBelowALockOfTheSameKeyIsRefused(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		err := a.client.Do(t.Context(), key, func(ctx context.Context, _ *locker.Lock) error { return a.Run(ctx, a.lead) })
		mustBePermanent(t, err)
		if failure, ok := errors.AsType[*locker.Error](err); !ok || failure.ErrorType() != "deadlock" {
			t.Errorf("Run = %v", err)
		}
	})
}

// A reentrant lock is granted again to the owner that has it.
func TestTwoCandidatesAreNeverTheSameOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ctx, cancel := context.WithCancel(locker.ContextWithOwner(t.Context(), "ann"))
		defer cancel()
		var n times
		var all sync.WaitGroup
		for range 2 {
			e := election.New(locker.New(reentrant.New(store)), key)
			all.Go(func() {
				_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
					n.more()
					<-ctx.Done()
					return nil
				})
			})
		}
		time.Sleep(time.Minute)
		if led := n.more() - 1; led != 1 {
			t.Errorf("%d lead", led)
		}
		cancel()
		all.Wait()
		time.Sleep(moment)
	})
}

func TestTheCtxOfLeadHasTheValuesAndTheDeadlineOfTheCtxOfRun(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		type name struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "ann"), time.Hour)
		defer cancel()
		want, _ := ctx.Deadline()
		err := s.candidate("a").Run(ctx, func(ctx context.Context, _ election.Term) error {
			if value := ctx.Value(name{}); value != "ann" {
				t.Errorf("the value is %v", value)
			}
			if end, _ := ctx.Deadline(); end != want {
				t.Errorf("the deadline is %v; want %v", end, want)
			}
			if text := fmt.Sprint(ctx); !strings.Contains(text, key) {
				t.Errorf("it is printed as %s", text)
			}
			return errEnough
		})
		mustMatch(t, err, errEnough)
	})
}

func TestOptionsHoldForEachTerm(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		a.Election = election.New(a.client, key, locker.WithTTL(2*time.Second), locker.WithMaxHold(time.Minute))
		a.run(func(ctx context.Context, term election.Term) error {
			if _, left, _ := s.store.Get(key); left > 2*time.Second {
				t.Errorf("the key ends in %v", left)
			}
			return a.lead(ctx, term)
		})
		time.Sleep(5*time.Minute + moment)
		if order := s.order(); order != "aaaaaa" {
			t.Errorf("%d terms in 5 minutes of one minute each", len(order))
		}
	})
}

// onCtx is a ctx that counts who follows its end.
type onCtx struct {
	context.Context
	mu sync.Mutex
	n  int
}

func (c *onCtx) AfterFunc(f func()) (stop func() bool) {
	c.count(1)
	undo := context.AfterFunc(c.Context, f)
	return func() bool { c.count(-1); return undo() }
}

// Value keeps package context from following the ctx inside instead.
func (c *onCtx) Value(any) any { return nil }

func (c *onCtx) count(by int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += by
	return c.n
}

func TestTermsLeaveNothingAtTheCtxOfRun(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		inner, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := &onCtx{Context: inner}
		var n times
		err := s.candidate("a").Run(ctx, func(context.Context, election.Term) error {
			if n.more() == 10 {
				return errEnough
			}
			return nil
		})
		mustMatch(t, err, errEnough)
		if left := ctx.count(0); left != 0 {
			t.Errorf("%d still follow the end of the ctx", left)
		}
	})
}
