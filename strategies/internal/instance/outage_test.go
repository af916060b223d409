package instance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// server is a store on one server that can be down.
type server struct {
	*memory.Store
	parts bool // it is a cluster: keys that begin with "down" are on a part that is down

	mu                     sync.Mutex
	fault                  error
	sets, watches, removes int
	now, most              int // sets under way
}

func newServer() *server { return &server{Store: memory.New()} }

func (s *server) OneServer() bool { return !s.parts }

func (s *server) set(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
	s.sets, s.watches, s.removes, s.most = 0, 0, 0, 0
}

func (s *server) counts() (sets, watches, removes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets, s.watches, s.removes
}

func (s *server) call(key string, count *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if s.parts && key[0] != 'd' {
		return nil
	}
	return s.fault
}

func (s *server) grant(key string, set func() (backends.Result, error)) (backends.Result, error) {
	err := s.call(key, &s.sets)
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	if err != nil {
		return backends.Result{}, err
	}
	return set()
}

func (s *server) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.grant(key, func() (backends.Result, error) { return s.Store.SetNX(ctx, key, value, ttl) })
}

func (s *server) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, turn backends.Turn) (backends.Result, error) {
	return s.grant(key, func() (backends.Result, error) { return s.Store.SetNXQueued(ctx, key, value, ttl, turn) })
}

func (s *server) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, turn backends.Turn) (backends.Result, error) {
	return s.grant(key, func() (backends.Result, error) { return s.Store.SetNXNumbered(ctx, key, value, ttl, turn) })
}

func (s *server) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if err := s.call(key, &s.removes); err != nil {
		return false, err
	}
	return s.Store.DeleteIf(ctx, key, value)
}

func (s *server) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if err := s.call(key, new(int)); err != nil {
		return false, err
	}
	return s.Store.ExpireIf(ctx, key, value, ttl)
}

func (s *server) Watch(ctx context.Context, key string, wake func()) error {
	if err := s.call(key, &s.watches); err != nil {
		return err
	}
	return s.Store.Watch(ctx, key, wake)
}

func (s *server) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if err := s.call(key, &s.watches); err != nil {
		return err
	}
	return s.Store.WatchQueued(ctx, key, waiter, wake)
}

var faults = map[string]error{"unknown": io.EOF, "not done": unsent{io.EOF}}

// Hundreds of goroutines with a key each wait for a server that is down for 20 s.
func TestAnOutageCostsAConstantNumberOfAttemptsWhateverTheNumberOfKeys(t *testing.T) {
	waiters := 250
	if full.Size() {
		waiters = 1000
	}
	const outage = 20 * time.Second
	for name, of := range map[string]func(*server) locker.Locker{
		"single": func(s *server) locker.Locker { return single.New(s) },
		"fair":   func(s *server) locker.Locker { return fair.New(s) },
		"fenced": func(s *server) locker.Locker { return fenced.New(s) },
	} {
		for class, fault := range faults {
			if name != "single" && class == "not done" {
				continue
			}
			t.Run(name+" "+class, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					c := locker.New(of(s), locker.WithWait(time.Minute), locker.WithTTL(10*time.Second))
					s.set(fault)
					var all sync.WaitGroup
					for i := range waiters {
						all.Go(func() {
							l, err := c.Lock(t.Context(), fmt.Sprint("k", i))
							if err != nil {
								t.Error(err)
								return
							}
							if err := l.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
						})
					}
					time.Sleep(time.Second) // by then all have made their first attempt
					s.set(fault)
					time.Sleep(outage)
					if sets, watches, removes := s.counts(); sets > 60 || sets < 10 || watches > 60 || removes > 60 {
						t.Errorf("%d attempts, %d watches and %d cleanups in %v", sets, watches, removes, outage)
					}
					s.set(nil)
					back := time.Now()
					all.Wait()
					if took := time.Since(back); took > 4*time.Second {
						t.Errorf("the last waiter got its lock %v after the server came back", took)
					}
					if s.most > waiters/4 {
						t.Errorf("%d attempts at once", s.most)
					}
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

func TestALockWithoutWithWaitReturnsTheLastCauseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		c := locker.New(single.New(s))
		s.set(unsent{io.EOF})
		silent := 0
		for i := range 1000 {
			_, err := c.TryLock(t.Context(), fmt.Sprint("k", i))
			if !errors.Is(err, io.EOF) || !backends.Unsent(err) || errors.Is(err, locker.ErrHeld) {
				t.Fatal(err)
			}
			if errors.As(err, new(*cleanup.SilentError)) {
				silent++
			}
		}
		if sets, _, _ := s.counts(); sets > 20 || silent < 980 {
			t.Errorf("%d attempts; %d calls were not sent", sets, silent)
		}
		s.set(nil)
		time.Sleep(time.Second)
		l, err := c.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRenewalsAndReleasesAreSentWhileGrantsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := single.New(s)
		var leases []contract.Lease
		req := func(i int) contract.Request {
			return contract.Request{Key: fmt.Sprint("k", i), Token: contract.NewToken(), TTL: 20 * time.Second}
		}
		for i := range 100 {
			lease, err := l.Acquire(t.Context(), req(i))
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		s.set(unsent{io.EOF})
		for i := range 100 {
			_, _ = l.Acquire(t.Context(), req(i))
		}
		s.mu.Lock()
		s.parts = true // keys that do not begin with "d" are answered: as in quarantine, after the gate has closed
		s.mu.Unlock()
		for _, lease := range leases {
			if _, err := l.Extend(t.Context(), lease, 20*time.Second); err != nil {
				t.Error(err)
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}
	})
}

// A cluster is several servers: keys on the working servers can be locked, and no key is held back.
func TestAClusterWithAPartThatIsDownGrantsTheOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.parts = true
		l := single.New(s)
		s.set(unsent{io.EOF})
		for i := range 100 {
			if _, err := l.Acquire(t.Context(), contract.Request{Key: fmt.Sprint("down", i), Token: "t", TTL: time.Second}); err == nil {
				t.Fatal("granted")
			}
		}
		for i := range 100 {
			if _, err := l.Acquire(t.Context(), contract.Request{Key: fmt.Sprint("up", i), Token: "t", TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestACallThatEndsSoonShowsNothingAboutTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := single.New(s)
		s.set(context.DeadlineExceeded)
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_, err := l.Acquire(ctx, contract.Request{Key: fmt.Sprint("k", i), Token: "t", TTL: time.Second})
			if err == nil {
				t.Fatal("granted")
			}
			cancel()
		}
		s.set(nil)
		if _, err := l.Acquire(t.Context(), contract.Request{Key: "k", Token: "t", TTL: time.Second}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

type forbidden struct{}

func (forbidden) Error() string   { return "not permitted" }
func (forbidden) Permanent() bool { return true }

// A permanent error for one key does not hold back other keys. As the answer to a probe it ends the
// outage.
func TestAPermanentErrorIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := single.New(s)
		acquire := func(i int) error {
			_, err := l.Acquire(t.Context(), contract.Request{Key: fmt.Sprint("k", i), Token: "t", TTL: time.Second})
			return err
		}
		s.set(forbidden{})
		for i := range 100 {
			if err := acquire(i); !errors.Is(err, forbidden{}) {
				t.Fatal(err)
			}
		}
		s.set(unsent{io.EOF})
		for i := range 100 {
			_ = acquire(i)
		}
		s.set(forbidden{})
		time.Sleep(time.Second)
		for i := range 100 {
			if err := acquire(i); !errors.Is(err, forbidden{}) {
				t.Fatal(err)
			}
		}
	})
}

// A call that its caller has waited for shows that the server hangs, although its ctx ended it.
func TestCallsThatEndLateShowThatTheServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := single.New(hanging{s})
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := l.Acquire(ctx, contract.Request{Key: fmt.Sprint("k", i), Token: "t", TTL: time.Second}); err == nil {
				t.Fatal("granted")
			}
			cancel()
		}
		unsent := 0
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := l.Acquire(ctx, contract.Request{Key: fmt.Sprint("l", i), Token: "t", TTL: time.Second})
			if silent := (*cleanup.SilentError)(nil); errors.As(err, &silent) {
				unsent++
			}
			cancel()
		}
		if unsent < 90 {
			t.Errorf("%d of 100 attempts were not sent to a server that hangs", unsent)
		}
		time.Sleep(time.Minute)
	})
}

// hanging is a server whose grants end with their ctx.
type hanging struct{ *server }

func (h hanging) SetNX(ctx context.Context, _, _ string, _ time.Duration) (backends.Result, error) {
	<-ctx.Done()
	return backends.Result{}, ctx.Err()
}

func (h hanging) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, _ backends.Turn) (backends.Result, error) {
	return h.SetNX(ctx, key, value, ttl)
}
