package locker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// One process begins the work, and another one ends it. Nobody else gets the lock in between.
func ExampleClient_Resume() {
	ctx, store := context.Background(), memory.New()
	first, second := locker.New(fenced.New(store)), locker.New(fenced.New(store))

	l, err := first.Lock(ctx, "invoice/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Unlock(ctx) // does nothing after Transfer
	ticket, err := l.Transfer(ctx, 20*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	message, _ := ticket.MarshalText() // a secret

	var received locker.Ticket
	if err := received.UnmarshalText(message); err != nil {
		fmt.Println(err)
		return
	}
	next, err := second.Resume(ctx, received)
	if err != nil {
		fmt.Println(err) // matches locker.ErrLost if it came too late, or twice
		return
	}
	defer next.Unlock(ctx)
	fmt.Println(next.Key(), next.Fence() > l.Fence())
	_, err = second.Resume(ctx, received)
	fmt.Println(err)
	// Output:
	// invoice/42 true
	// lockstep: resume "invoice/42": the ticket was used, or its lease has ended; take the lock with Lock
}

// transferred is a lock that was given away, and its ticket.
func transferred(t *testing.T, c *locker.Client, key string, opts ...locker.Option) (*locker.Lock, locker.Ticket) {
	t.Helper()
	l, err := c.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := l.Transfer(t.Context(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l, ticket
}

func TestATicketTravelsAsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"invoice/42", "a.b.c", "锁 \x01", strings.Repeat("k", locker.MaxKeyLength)} {
			store := memory.New()
			_, ticket := transferred(t, locker.New(single.New(store), locker.WithHolder("ann's host/7")), key)
			message, err := json.Marshal(map[string]locker.Ticket{"ticket": ticket})
			if err != nil {
				t.Fatal(err)
			}
			var read map[string]locker.Ticket
			if err := json.Unmarshal(message, &read); err != nil {
				t.Fatal(err)
			}
			if read["ticket"].Key() != key {
				t.Errorf("the ticket is for %q, want %q", read["ticket"].Key(), key)
			}
			l, err := locker.New(single.New(store)).Resume(t.Context(), read["ticket"])
			if err != nil {
				t.Fatalf("Resume of %q = %v", key, err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// As for Extend: the end of the lease only moves later.
func TestATransferDoesNotShortenTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ttl, free := range map[time.Duration]time.Duration{time.Second: 9 * time.Second, 20 * time.Second: 20 * time.Second} {
			store, began := memory.New(), time.Now()
			if _, err := mustLock(t, locker.New(single.New(store), locker.WithTTL(9*time.Second)), "key").Transfer(t.Context(), ttl); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, mustLock(t, locker.New(single.New(store)), "key"))
			if waited := time.Since(began); waited < free || waited > free+time.Second {
				t.Errorf("after a Transfer for %v the lock was free after %v; want %v", ttl, waited, free)
			}
		}
	})
}

func TestATextThatIsNoTicketIsBadInput(t *testing.T) {
	for _, text := range []string{"", "1", "1..", "2.a2V5.dG9rZW4", "1.a2V5.dG9rZW4.x", "1.a2V5.!", "1.=.dG9rZW4", " 1.a2V5.dG9rZW4"} {
		var ticket locker.Ticket
		err := ticket.UnmarshalText([]byte(text))
		if err == nil { // it names nothing, which Resume says
			_, err = locker.New(single.New(memory.New())).Resume(t.Context(), ticket)
		}
		var p interface{ Permanent() bool }
		if !errors.As(err, &p) || !p.Permanent() {
			t.Errorf("%q: error %v; want a permanent one", text, err)
		}
	}
}

func FuzzTicket(f *testing.F) {
	f.Add("1.a2V5.dG9rZW4")
	f.Fuzz(func(t *testing.T, text string) {
		var ticket locker.Ticket
		if ticket.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := ticket.MarshalText()
		var again locker.Ticket
		if err != nil || again.UnmarshalText(written) != nil || again != ticket {
			t.Errorf("%q is read as %#v, which is written as %q, %v", text, ticket, written, err)
		}
	})
}

func TestATicketIsASecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		_, ticket := transferred(t, locker.New(single.New(store)), "key")
		token, _, _ := store.Get("key")
		var logged strings.Builder
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("given away", "ticket", ticket)
		for _, shown := range []string{
			ticket.String(), fmt.Sprintf("%v %+v %#v %s %q %d %x", ticket, ticket, ticket, ticket, ticket, ticket, &ticket), logged.String(),
		} {
			if token == "" || strings.Contains(shown, token) || !strings.Contains(shown, "key") {
				t.Errorf("%q; want the key and not the token", shown)
			}
		}
	})
}

func TestWhoeverWaitsGoesOnWaitingForALockThatIsGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := locker.New(single.New(store))
		old, ticket := transferred(t, c, "key")
		got := make(chan error, 2)
		for _, waiter := range []*locker.Client{c, locker.New(single.New(store))} {
			go func() {
				l, err := waiter.Lock(t.Context(), "key")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				got <- err
			}()
		}
		synctest.Wait()
		resumed, err := locker.New(fenced.New(store)).Resume(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // it is renewed
		if err := old.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock of the lock that was given away = %v", err)
		}
		if len(got) > 0 || resumed.Context().Err() != nil || resumed.Fence() == 0 {
			t.Errorf("%d waiters have had the lock, and the hold says %v", len(got), resumed.Context().Err())
		}
		if err := resumed.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for range cap(got) {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
	})
}

// A waiter of the Client that gives the lock away has made no attempt: it was to be told by that Client.
// Now another process releases the lock, so the waiter hears of it from the store.
func TestAWaiterHearsOfTheReleaseOfALockThatItsClientHasGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c, other := locker.New(single.New(store)), locker.New(single.New(store))
		seldom := locker.WithBackoff(func(int, float64) time.Duration { return 9 * time.Second })
		before := mustLock(t, other, "key")
		got := make(chan *locker.Lock)
		for range 2 {
			go func() {
				l, err := c.Lock(context.WithoutCancel(t.Context()), "key", seldom)
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			synctest.Wait()
		}
		mustUnlock(t, before)
		first := <-got
		ticket, err := first.Transfer(t.Context(), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		resumed, err := other.Resume(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		released := time.Now()
		mustUnlock(t, resumed)
		second := <-got
		if waited := time.Since(released); waited > 0 {
			t.Errorf("a waiter had the lock %v after it was free", waited)
		}
		mustUnlock(t, second)
	})
}

func TestALockThatCannotBeGivenAwayIsHeldAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faults := memory.New(), new(backendtest.Faults)
		plain := locker.New(single.New(faults.Queued(store)))
		nested := locker.New(reentrant.New(store))
		owned := locker.ContextWithOwner(t.Context(), "ann")
		for name, c := range map[string]struct {
			lock      func() (*locker.Lock, error)
			ttl       time.Duration
			permanent bool
		}{
			"a minimum hold":   {func() (*locker.Lock, error) { return plain.Lock(t.Context(), "a", locker.WithMinHold(time.Second)) }, time.Second, true},
			"an owner":         {func() (*locker.Lock, error) { return nested.Lock(owned, "b") }, time.Second, true},
			"a ttl too long":   {func() (*locker.Lock, error) { return plain.Lock(t.Context(), "c") }, time.Hour, true},
			"a ttl too short":  {func() (*locker.Lock, error) { return plain.Lock(t.Context(), "d") }, 0, true},
			"no answer to ask": {func() (*locker.Lock, error) { return plain.Lock(t.Context(), "e") }, time.Second, false},
		} {
			l, err := c.lock()
			if err != nil {
				t.Fatal(err)
			}
			if !c.permanent {
				faults.Once(backendtest.ExpireIf, backendtest.Fail)
			}
			_, err = l.Transfer(t.Context(), c.ttl)
			var p interface{ Permanent() bool }
			if err == nil || c.permanent != (errors.As(err, &p) && p.Permanent()) {
				t.Errorf("Transfer of a lock with %s = %v; want a permanent error: %v", name, err, c.permanent)
			}
			if err := l.Context().Err(); err != nil {
				t.Errorf("the lock with %s is not held any more: %v", name, err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock of the lock with %s = %v", name, err)
			}
			time.Sleep(2 * time.Second)
			if _, _, found := store.Get(l.Key()); found {
				t.Errorf("the lock with %s is not free", name)
			}
		}
	})
}

func TestTransferAfterUnlockOrALossReturnsNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := locker.New(single.New(store))
		for key, end := range map[string]func(*locker.Lock) error{
			"released": func(l *locker.Lock) error { return l.Unlock(t.Context()) },
			"lost":     func(*locker.Lock) error { store.Delete("lost"); return nil },
			"given":    func(l *locker.Lock) error { _, err := l.Transfer(t.Context(), time.Second); return err },
		} {
			l, err := c.Lock(t.Context(), key)
			if err == nil {
				err = end(l)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := locker.ErrReleased
			if key == "lost" {
				want = locker.ErrLost
			}
			if ticket, err := l.Transfer(t.Context(), time.Second); !errors.Is(err, want) || ticket != (locker.Ticket{}) {
				t.Errorf("Transfer of a lock that was %s = %v, %v; want %v", key, ticket, err, want)
			}
		}
	})
}

// The extension is answered, and the lease has ended by the wall clock when Transfer comes to Unlock. Before
// the extension the clock was set back by as much, so the old lease has not ended.
func TestTransferOfALockThatIsLostAfterItsExtensionReturnsNoTicket(t *testing.T) {
	var clock wallclock.Clock
	bubbleWithAClock(t, &clock, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithoutRenewal())
		clock.Jump(-time.Hour)
		s.onExtend = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			defer clock.Jump(time.Hour)
			return next()
		}
		if ticket, err := l.Transfer(t.Context(), 20*time.Second); !errors.Is(err, locker.ErrLost) || ticket != (locker.Ticket{}) {
			t.Errorf("Transfer = %v, %v; want %v", ticket, err, locker.ErrLost)
		}
	})
}

// A second ticket would be of no use to the process that gets it.
func TestOfTwoTransfersAtOnceOneReturnsATicket(t *testing.T) {
	c := locker.New(single.New(memory.New()))
	for range 300 {
		l, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		tickets, begin := make(chan locker.Ticket, 2), make(chan struct{})
		for range cap(tickets) {
			go func() {
				<-begin
				ticket, err := l.Transfer(t.Context(), time.Second)
				if err == nil == (ticket == locker.Ticket{}) {
					t.Errorf("Transfer = %v, %v", ticket, err)
				}
				tickets <- ticket
			}()
		}
		close(begin)
		first, second := <-tickets, <-tickets
		if (first == locker.Ticket{}) == (second == locker.Ticket{}) {
			t.Fatalf("the tickets are %#v and %#v; want one", first, second)
		}
		if second != (locker.Ticket{}) {
			first = second
		}
		next, err := c.Resume(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnlockWhileALockIsGivenAwaySendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faults := memory.New(), new(backendtest.Faults)
		c := locker.New(single.New(faults.Queued(store)))
		l, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		faults.Set(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error {
			t.Error("a release was sent")
			return backendtest.ErrInjected
		})
		ticket, err := l.Transfer(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		if err := c.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		faults.Set(backendtest.DeleteIf, nil)
		if next, err := c.Resume(t.Context(), ticket); err != nil || next.Unlock(t.Context()) != nil {
			t.Errorf("Resume = %v, %v", next, err)
		}
	})
}

func TestMiddlewareSeesTwoHoldsOfALockThatIsGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended []string
		store := memory.New()
		c := locker.New(single.New(store), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return observing{next, func(_ context.Context, l contract.Lease) (context.Context, func(time.Time, error)) {
				begun = append(begun, l.Token)
				return nil, func(_ time.Time, cause error) {
					ended = append(ended, fmt.Sprint(l.Token, errors.Is(cause, locker.ErrReleased)))
				}
			}}
		}))
		_, ticket := transferred(t, c, "key")
		l, err := c.Resume(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait() // Unlock does not wait for the middleware
		if len(begun) != 2 || begun[0] == begun[1] || len(ended) != 2 || ended[0] != begun[0]+"true" || ended[1] != begun[1]+"true" {
			t.Errorf("begun %q, ended %q; want two holds that were released", begun, ended)
		}
	})
}

// observing follows the holds of the Locker.
type observing struct {
	locker.Locker
	begin func(context.Context, contract.Lease) (context.Context, func(time.Time, error))
}

func (o observing) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := o.Locker.Acquire(ctx, req)
	contract.CallOf(ctx).OnHold(o.begin)
	return lease, err
}

func (o observing) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	lease, err := o.Locker.Transfer(ctx, from, req)
	contract.CallOf(ctx).OnHold(o.begin)
	return lease, err
}

// If the first request has changed nothing, the next Resume goes on with the lock, and neither the cleanup nor
// a late arrival of the first disturbs it. Otherwise the lock is released.
func TestAResumeWithAnUnknownOutcomeMayBeTriedAgain(t *testing.T) {
	const limit, later = time.Second, 3 * time.Second
	for strategy, of := range map[backendtest.Op]func(*memory.Store, *backendtest.Faults) locker.Locker{
		backendtest.SetNX:         func(s *memory.Store, f *backendtest.Faults) locker.Locker { return single.New(f.Queued(s)) },
		backendtest.SetNXNumbered: func(s *memory.Store, f *backendtest.Faults) locker.Locker { return fenced.New(f.Numbered(s)) },
		backendtest.Enter:         func(s *memory.Store, f *backendtest.Faults) locker.Locker { return semaphore.New(f.Ordered(s), 1) },
	} {
		for name, c := range map[string]struct {
			fault   backendtest.Fault
			after   time.Duration // the next Resume
			resumes bool
		}{
			"the request is lost":                         {backendtest.Fail, 0, true},
			"the request was lost":                        {backendtest.Fail, later, true},
			"the connection had ended":                    {backendtest.Stale, 0, true},
			"the reply is lost":                           {backendtest.LoseReply, 0, false},
			"the reply was lost":                          {backendtest.LoseReply, later, false},
			"the request hangs":                           {backendtest.Hang, 0, true},
			"the reply hangs":                             {backendtest.LoseReplyHang, 0, false},
			"the request arrives after the next":          {backendtest.Ghost(later), 0, true},
			"the request arrives before the next":         {backendtest.Ghost(later / 2), later, false},
			"the request hangs, and arrives after that":   {backendtest.Late(later), 0, true},
			"the request hangs, and arrives before that":  {backendtest.Late(later), later, false},
			"the request arrives, and the reply is late":  {backendtest.LateReply(later), 0, false},
			"the request arrives, and the reply was late": {backendtest.LateReply(later), later, false},
		} {
			t.Run(string(strategy)+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, faults := memory.New(), new(backendtest.Faults)
					other, c2 := locker.New(single.New(store)), locker.New(of(store, faults))
					if strategy == backendtest.Enter {
						other = locker.New(semaphore.New(store, 1))
					}
					_, ticket := transferred(t, other, "key")
					faults.Once(strategy, c.fault)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					if _, err := c2.Resume(ctx, ticket); err == nil || errors.Is(err, locker.ErrLost) {
						t.Fatalf("Resume = %v; want an unknown outcome", err)
					}
					time.Sleep(c.after)
					l, err := c2.Resume(t.Context(), ticket)
					if c.resumes {
						if err != nil {
							t.Fatalf("the next Resume = %v", err)
						}
						time.Sleep(time.Minute)
						if _, err := other.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) || l.Context().Err() != nil {
							t.Errorf("a minute later TryLock = %v, and the hold says %v", err, l.Context().Err())
						}
						mustUnlock(t, l)
						return
					}
					mustMatch(t, err, locker.ErrLost)
					time.Sleep(later)
					mustUnlock(t, mustLock(t, other, "key", locker.WithAttempts(1)))
				})
			})
		}
	}
}

// The lease is given away when it is extended. If the end of ctx kept the ticket back then, nobody
// could resume.
func TestTransferReturnsItsTicketAlthoughItsCtxEndsMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		hangs := make(chan struct{})
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			<-hangs
			return contract.Lease{}, backendtest.ErrInjected
		}
		byHand, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		mustMatch(t, l.Extend(byHand, time.Minute), context.DeadlineExceeded)
		synctest.Wait()
		s.mu.Lock()
		s.onExtend = nil
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // Transfer waits 100 ms for that Extend
		defer cancel()
		ticket, err := l.Transfer(ctx, 20*time.Second)
		if err != nil {
			t.Errorf("Transfer = %v", err)
		}
		if ctx.Err() == nil {
			t.Error("the ctx has not ended during Transfer")
		}
		close(hangs)
		next, err := c.Resume(t.Context(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, next)
	})
}

// emptied is middleware that loses the token of the hold to take over.
type emptied struct{ locker.Locker }

func (e emptied) Transfer(ctx context.Context, _ string, req contract.Request) (contract.Lease, error) {
	return e.Locker.Transfer(ctx, "", req)
}

func TestATransferThatMiddlewareRobsOfItsTokenIsNoAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ticket, err := mustLock(t, c, "key").Transfer(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		through := locker.New(s, locker.WithMiddleware(func(next locker.Locker) locker.Locker { return emptied{next} }))
		time.Sleep(20 * time.Second) // the key is free
		if l, err := through.Resume(t.Context(), ticket); err == nil {
			t.Errorf("Resume has taken a lock %s that nobody gave it", l.Key())
		}
	})
}
