package election_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
)

// The store of the leader answers no more, and its lead does not look at its ctx.
func TestTwoNeverLeadAtOnceWhateverALeaderIgnores(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"a store that hangs":                  backendtest.Hang,
		"a store that hangs and executes all": backendtest.LoseReplyHang,
		"a store that fails":                  backendtest.Fail,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.candidate("a")
				returned := make(chan struct{})
				var n times
				a.run(func(ctx context.Context, term election.Term) error {
					if n.more() > 1 {
						select {
						case <-returned:
						default:
							t.Error("a second term begins before the first lead has returned")
						}
						return a.lead(ctx, term)
					}
					defer close(returned)
					defer a.noted(term)()
					time.Sleep(2 * time.Minute)
					return nil
				})
				s.within(moment, "a leads", a.leads)
				b := s.start("b")
				defer s.guard()()
				time.Sleep(time.Minute)
				a.faults.Set(backendtest.All, fault)
				silent := time.Now()
				s.within(ttl, "a leads no more", func() bool { return !a.leads() })
				s.within(time.Until(silent.Add(ttl+moment)), "b leads", b.leads)
				a.faults.Clear()
				<-returned
				time.Sleep(time.Minute)
				if !b.leads() || a.leads() {
					t.Error("b leads no more")
				}
				b.returns(nil)
				s.within(moment, "a leads again", a.leads)
			})
		})
	}
}

// A look at IsLeader ends a term as well. Here nobody looks.
func TestTheCtxOfLeadEndsBeforeAnotherLeads(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		b := s.start("b")
		a.faults.Set(backendtest.All, backendtest.Hang)
		s.within(ttl+moment, "b leads", func() bool { return s.order() == "ab" })
		a.faults.Clear()
		if terms := s.spells(); terms[0].ended.IsZero() || !terms[0].ended.Before(terms[1].began) {
			t.Errorf("the terms are %+v", terms)
		}
		if !b.leads() {
			t.Error("b leads no more")
		}
	})
}

// The store has granted the lock, and the candidate does not know. With etcd nobody led from then
// on: https://github.com/etcd-io/etcd/issues/21128.
func TestACampaignWithALostReplyLocksNobodyOut(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"lost":             backendtest.LoseReply,
		"lost in a hang":   backendtest.LoseReplyHang,
		"late":             backendtest.Late(3 * time.Second),
		"late in disguise": backendtest.Ghost(500 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.candidate("a")
				a.faults.Once(backendtest.All, fault)
				a.run(a.lead)
				time.Sleep(100 * time.Millisecond)
				a.stop(nil) // and it does not come back
				<-a.ended
				began := time.Now()
				b := s.start("b")
				s.within(3*time.Second+moment, "b leads", b.leads)
				t.Logf("after %v", time.Since(began))
			})
		})
	}
}

func TestACandidateThatIsAloneOutlivesALostReply(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		a.faults.Once(backendtest.All, backendtest.LoseReply)
		a.run(a.lead)
		s.within(moment, "it leads", a.leads)
	})
}

// With etcd a Resign that had failed was forgotten: https://github.com/etcd-io/etcd/issues/22123.
func TestAResignationThatFailsIsSentAgain(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"request lost":        backendtest.Fail,
		"reply lost":          backendtest.LoseReply,
		"no answer":           backendtest.Hang,
		"executed, no answer": backendtest.LoseReplyHang,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				a := s.start("a")
				b := s.start("b")
				a.faults.Once(backendtest.DeleteIf, fault)
				a.returns(nil)
				s.within(2*moment, "b leads", b.leads)
				time.Sleep(ttl)
				b.returns(nil)
				s.within(moment, "a leads again", a.leads)
				if order := s.order(); order != "aba" {
					t.Errorf("they led in the order %q", order)
				}
			})
		})
	}
}

// No release arrives. Run goes on all the same, and the others lead when the lease has ended.
func TestALeaderWhoseReleaseIsNeverAnsweredCampaignsAgain(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		b := s.start("b")
		a.faults.Set(backendtest.DeleteIf, backendtest.Hang)
		a.returns(nil)
		s.within(ttl+moment, "b leads", b.leads)
		a.faults.Clear()
		time.Sleep(ttl)
		b.returns(nil)
		s.within(moment, "a leads again", a.leads)
	})
}

// campaigns are when those of a Client ended, by its middleware.
type campaigns struct {
	mu     sync.Mutex
	failed []time.Time
}

// count is how many have failed, and when the one after so many did.
func (c *campaigns) count(after int) (n int, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.failed); n > after {
		next = c.failed[after]
	}
	return n, next
}

func (c *campaigns) around(next locker.Locker) locker.Locker { return watched{next, c} }

type watched struct {
	locker.Locker
	campaigns *campaigns
}

func (w watched) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := w.Locker.Acquire(ctx, req)
	if err != nil {
		w.campaigns.mu.Lock()
		w.campaigns.failed = append(w.campaigns.failed, time.Now())
		w.campaigns.mu.Unlock()
	}
	return lease, err
}

func TestACampaignOutlastsAnOutageAndMiddlewareSeesIt(t *testing.T) {
	timesOut := func(ctx context.Context, _ func(context.Context) error) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(3 * time.Second): // as client libraries do
			return backendtest.ErrInjected
		}
	}
	for name, fault := range map[string]backendtest.Fault{"fails": backendtest.Fail, "hangs": timesOut} {
		for options, opts := range map[string][]locker.ClientOption{
			"no limits": nil, "limits of the Client": {locker.WithWait(2 * time.Second), locker.WithAttempts(1)},
		} {
			t.Run(name+", "+options, func(t *testing.T) {
				play(t, func(t *testing.T, s *stage) {
					var seen campaigns
					a := s.start("a")
					b := s.start("b", append(opts, locker.WithMiddleware(seen.around))...)
					const before = 10 * time.Minute
					time.Sleep(before)
					quiet, _ := seen.count(0)
					if opts == nil && quiet > 0 {
						t.Errorf("%d campaigns have failed beside a leader that is well", quiet)
					}
					calls := b.faults.Calls(backendtest.All)
					if opts == nil && calls > 300 {
						t.Errorf("a candidate that waits makes %d calls in %v", calls, before)
					}

					a.faults.Set(backendtest.All, fault)
					b.faults.Set(backendtest.All, fault)
					began := time.Now()
					const lasts = 100 * time.Second
					time.Sleep(lasts)
					if a.leads() || b.leads() {
						t.Error("somebody leads without a store")
					}
					if calls := b.faults.Calls(backendtest.All) - calls; calls > 500 { // with cleanups
						t.Errorf("%d calls in %v", calls, lasts)
					}
					reported, first := seen.count(quiet)
					if reported -= quiet; reported < 3 || opts == nil && reported > 5 {
						t.Errorf("middleware has seen %d failures in %v", reported, lasts)
					}
					if after := first.Sub(began); after > 10*time.Second {
						t.Errorf("middleware has seen the outage after %v", after)
					}
					a.faults.Clear()
					b.faults.Clear()
					s.within(5*time.Second, "somebody leads again", func() bool { return a.leads() || b.leads() })
				})
			})
		}
	}
}

func TestAPermanentErrorEndsRun(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		a := s.candidate("a")
		a.faults.Set(backendtest.All, backendtest.Permanent)
		err := a.Run(t.Context(), a.lead)
		mustBePermanent(t, err)
		mustMatch(t, err, backendtest.ErrInjected)
	})
}

func TestAPermanentErrorOfTheReleaseEndsRun(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		a := s.start("a")
		a.faults.Set(backendtest.DeleteIf, backendtest.Permanent)
		a.returns(nil)
		<-a.ended
		mustBePermanent(t, a.err)
		time.Sleep(ttl)
	})
}

// Each term ends at once, for whatever reason.
func TestThePauseGrowsWhileTermsAreShort(t *testing.T) {
	for name, c := range map[string]struct {
		term func(s *stage, ctx context.Context) error
		most int // terms in 10 minutes, with pauses of 0.75 s on average
	}{
		"resigned": {func(*stage, context.Context) error { return nil }, 900},
		"lost": {func(s *stage, ctx context.Context) error {
			s.store.Set(key, "thief", time.Minute)
			<-ctx.Done()
			s.store.Delete(key)
			return ctx.Err()
		}, 650},
		"lost, and it fails": {func(s *stage, ctx context.Context) error {
			s.store.Delete(key)
			<-ctx.Done()
			return errors.New("write failed")
		}, 650},
		"never renewed": {func(s *stage, ctx context.Context) error {
			s.all[0].faults.Set(backendtest.ExpireIf, backendtest.Fail)
			<-ctx.Done()
			s.all[0].faults.Clear()
			return ctx.Err()
		}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			playFenced(t, func(t *testing.T, s *stage) {
				a := s.candidate("a", locker.WithTTL(time.Second))
				var well atomic.Bool
				a.run(func(ctx context.Context, term election.Term) error {
					if well.Load() {
						return a.lead(ctx, term)
					}
					defer a.noted(term)()
					return c.term(s, ctx)
				})
				const lasts = 10 * time.Minute
				time.Sleep(lasts)
				n := len(s.spells())
				t.Logf("%d terms in %v", n, lasts)
				if n < 250 || n > c.most {
					t.Errorf("%d terms in %v; want 250 to %d", n, lasts, c.most)
				}
				well.Store(true)
				time.Sleep(3 * time.Second) // a short term, a pause and more than a TTL
				a.returns(nil)
				before := time.Now()
				synctest.Wait()
				s.within(51*time.Millisecond, "it leads again, since the term before was long enough", a.leads)
				if gap := time.Since(before); gap < 25*time.Millisecond {
					t.Errorf("the pause was %v", gap)
				}
			})
		})
	}
}

// A candidate whose campaigns fail at once, by middleware for instance, does not spin.
func TestThePauseGrowsWhileCampaignsFail(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		var all times
		refuse := func(next locker.Locker) locker.Locker { return refusing{next, &all} }
		a := s.start("a", locker.WithMiddleware(refuse))
		time.Sleep(10 * time.Minute)
		if n := all.more() - 1; n < 50 || n > 150 {
			t.Errorf("%d campaigns in 10 minutes", n)
		}
		asked := time.Now()
		a.stop(nil)
		<-a.ended
		if took := time.Since(asked); took > 0 {
			t.Errorf("Run has ended %v after its ctx", took)
		}
	})
}

type refusing struct {
	locker.Locker
	n *times
}

func (r refusing) Acquire(context.Context, contract.Request) (contract.Lease, error) {
	r.n.more()
	return contract.Lease{}, errors.New("not today")
}
