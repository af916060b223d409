package locker_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// spy is a Locker on a store in memory. It notes each call, and a test can set hooks and faults.
type spy struct {
	locker.Locker
	store  *memory.Store
	faults *backendtest.Faults

	endpoint string

	mu       sync.Mutex
	acquires []contract.Request
	extends  []time.Time
	releases []contract.Lease
	watches  int

	onExtend  func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error)
	onAcquire func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error)
	onRelease func(ctx context.Context) error // instead of a Release
	onWatch   func(ctx context.Context) error

	onWatching func(wake func()) // gives wake to the test; the store does not call it then
}

func newSpy() *spy {
	store := memory.New(memory.WithMaxTTL(time.Hour))
	faults := new(backendtest.Faults)
	return &spy{Locker: single.New(faults.Queued(store)), store: store, faults: faults}
}

// Prompt tells that its calls end by themselves, as those of a store in memory do. So a call with a
// ctx that can't end runs on the goroutine of its caller.
func (s *spy) Prompt() bool { return true }

// Endpoint names the server, as a Locker over one server does.
func (s *spy) Endpoint() string { return s.endpoint }

func (s *spy) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return s.attempt(ctx, req, func() (contract.Lease, error) { return s.Locker.Acquire(ctx, req) })
}

func (s *spy) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	return s.attempt(ctx, req, func() (contract.Lease, error) { return s.Locker.Transfer(ctx, from, req) })
}

func (s *spy) attempt(ctx context.Context, req contract.Request, next func() (contract.Lease, error)) (contract.Lease, error) {
	s.mu.Lock()
	s.acquires = append(s.acquires, req)
	hook := s.onAcquire
	s.mu.Unlock()
	if hook != nil {
		return hook(ctx, next)
	}
	return next()
}

func (s *spy) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	s.mu.Lock()
	s.extends = append(s.extends, time.Now())
	hook := s.onExtend
	s.mu.Unlock()
	next := func() (contract.Lease, error) { return s.Locker.Extend(ctx, lease, ttl) }
	if hook != nil {
		return hook(ctx, next)
	}
	return next()
}

func (s *spy) Release(ctx context.Context, lease contract.Lease) error {
	s.mu.Lock()
	s.releases = append(s.releases, lease)
	hook := s.onRelease
	s.mu.Unlock()
	if hook != nil {
		return hook(ctx)
	}
	return s.Locker.Release(ctx, lease)
}

func (s *spy) Watch(ctx context.Context, key, waiter string, wake func()) error {
	s.mu.Lock()
	s.watches++
	hook := s.onWatch
	s.mu.Unlock()
	if hook != nil {
		return hook(ctx)
	}
	if s.onWatching != nil {
		s.onWatching(wake)
		return nil
	}
	return s.Locker.Watch(ctx, key, waiter, wake)
}

func (s *spy) asked() (acquires, extends, releases, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acquires), len(s.extends), len(s.releases), s.watches
}

// clocked is a Locker whose Client has a wall clock of its own.
type clocked struct {
	locker.Locker
	clock *wallclock.Clock
}

func (c clocked) WallClock() *wallclock.Clock { return c.clock }
func (c clocked) Prompt() bool                { return prompt.Of(c.Locker) }
func (c clocked) Endpoint() string            { return address.Of(c.Locker) }

// onClock is a Locker whose Client has that clock, on a store in memory with a maximum TTL of an
// hour.
func onClock(clock *wallclock.Clock) clocked {
	return clocked{single.New(memory.New(memory.WithMaxTTL(time.Hour))), clock}
}

// bubble runs test in fake time. At the end it checks that the Client has no line, no entry in its
// scheduler and no timer.
func bubble(t *testing.T, test func(t *testing.T, s *spy, c *locker.Client), opts ...locker.ClientOption) {
	t.Helper()
	bubbleWithAClock(t, nil, test, opts...)
}

// bubbleWithAClock gives the Client a wall clock that can be set.
func bubbleWithAClock(t *testing.T, clock *wallclock.Clock, test func(t *testing.T, s *spy, c *locker.Client), opts ...locker.ClientOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		c := locker.New(clocked{s, clock}, opts...)
		test(t, s, c)
		time.Sleep(5 * time.Second) // cleanups end by themselves
		synctest.Wait()
		if c.Lines() != 0 || c.Scheduled() != 0 || c.TimerIsSet() {
			t.Errorf("left over: %d lines, %d scheduled, timer set: %v", c.Lines(), c.Scheduled(), c.TimerIsSet())
		}
	})
}

// goroutines is how many the process has. While the runtime collects garbage, its count may have hundreds
// too many: those that have ended, and whose stacks are being freed.
func goroutines() int {
	runtime.GC()
	return runtime.NumGoroutine()
}

func mustLock(t *testing.T, c *locker.Client, key string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	l, err := c.Lock(t.Context(), key, opts...)
	if err != nil {
		t.Fatalf("Lock(%q) = %v", key, err)
	}
	return l
}

func mustUnlock(t *testing.T, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock = %v", err)
	}
}

func (s *spy) mustBeFree(t *testing.T, key string) {
	t.Helper()
	if value, left, ok := s.store.Get(key); ok {
		t.Errorf("%q still holds %q for %v", key, value, left)
	}
}

func mustMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
}

func mustNotMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("%v matches %v", err, target)
		}
	}
}
