package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestNodesAreCalledWithTheValuesOfTheCallersCtxAndNotItsEnd(t *testing.T) {
	type name struct{}
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		spies := make([]*ctxSpy, 3)
		all := lockers(nodes)
		for i, n := range nodes {
			spies[i] = &ctxSpy{Locker: n}
			all[i] = spies[i]
		}
		l, err := redlock.New(all)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "value"))
		nodes[2].set("acquire", behaviour{after: 100 * time.Millisecond})
		nodes[2].set("extend", behaviour{after: 100 * time.Millisecond})
		nodes[2].set("release", behaviour{after: 100 * time.Millisecond, err: errDown})
		lease, err := l.Acquire(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Extend(ctx, lease, ttl)
		time.AfterFunc(200*time.Millisecond, cancel)
		_ = l.Release(ctx, lease)
		cancel()
		synctest.Wait()
		for i, s := range spies {
			for j, got := range s.all() {
				end, limited := got.Deadline()
				switch {
				case got.Value(name{}) != "value":
					t.Errorf("call %d of node %d: the ctx lacks the values of the caller's", j+1, i+1)
				case !limited || time.Until(end) > redlock.DefaultNodeLimit:
					t.Errorf("call %d of node %d: the ctx has no deadline, or one after the node limit", j+1, i+1)
				case i == 2 && got.Err() != nil:
					t.Errorf("call %d of node %d: the ctx has ended with the caller's: %v", j+1, i+1, got.Err())
				}
			}
		}
		time.Sleep(250 * time.Millisecond) // all have answered, long before the limit
		for i, s := range spies {
			for j, got := range s.all()[:3] {
				if got.Err() == nil {
					t.Errorf("call %d of node %d: its ctx has not ended after the answer", j+1, i+1)
				}
			}
		}
		for _, got := range spies[2].all() { // also the repeated releases
			if got.Value(name{}) != "value" {
				t.Error("a release in the background has no values")
			}
		}
		if len(spies[2].all()) < 4 {
			t.Error("node 3 got no repeated release")
		}
		time.Sleep(time.Minute)
	})
}

type ctxSpy struct {
	locker.Locker
	mu   sync.Mutex
	seen []context.Context
}

func (s *ctxSpy) saw(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, ctx)
}

func (s *ctxSpy) all() []context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]context.Context(nil), s.seen...)
}

func (s *ctxSpy) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	s.saw(ctx)
	return s.Locker.Acquire(ctx, req)
}

func (s *ctxSpy) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	s.saw(ctx)
	return s.Locker.Extend(ctx, lease, ttl)
}

func (s *ctxSpy) Release(ctx context.Context, lease contract.Lease) error {
	s.saw(ctx)
	return s.Locker.Release(ctx, lease)
}

func TestNothingIsSentUnderACtxOrForALeaseThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.Acquire(over, request())
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || nodes[0].count("acquire") != 1 {
			t.Errorf("Acquire = %v", err)
		}
		if _, err := l.Extend(over, lease, ttl); !errors.Is(err, context.Canceled) || nodes[0].count("extend") != 0 {
			t.Errorf("Extend = %v", err)
		}
		if err := l.Release(over, lease); !errors.Is(err, context.Canceled) || nodes[0].count("release") != 0 {
			t.Errorf("Release = %v", err)
		}
		time.Sleep(ttl)
		if _, err := l.Extend(t.Context(), lease, ttl); !errors.Is(err, locker.ErrLost) || nodes[0].count("extend") != 0 {
			t.Errorf("Extend of a lease that has ended = %v", err)
		}
	})
}
