package pagelocker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/proof/allocations"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// BenchmarkLockUnlock is what the page adds to a Client and the store in memory while nobody looks.
func BenchmarkLockUnlock(b *testing.B) {
	store := memory.New()
	for _, c := range []struct {
		name       string
		middleware []contract.Middleware
	}{
		{"without", nil},
		{"this process", []contract.Middleware{pagelocker.New().Middleware}},
		{"with a store", []contract.Middleware{pagelocker.New(pagelocker.WithStore(store)).Middleware}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			locks := locker.New(single.New(store), locker.WithMiddleware(c.middleware...))
			b.ReportAllocs()
			for b.Loop() {
				l, err := locks.Lock(ctx, "key")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestWhileNobodyLooksOnlyTheHoldIsAllocated(t *testing.T) {
	allocs := func(middleware ...contract.Middleware) float64 {
		locks := locker.New(single.New(memory.New()), locker.WithMiddleware(middleware...))
		return allocations.Of(4000, func() {
			if l, err := locks.Lock(context.Background(), "key"); err != nil || l.Unlock(context.Background()) != nil {
				t.Fatal(err)
			}
		})
	}
	without, with := allocs(), allocs(pagelocker.New(pagelocker.WithStore(memory.New())).Middleware)
	if more := with - without; more > 4.6 { // 4: a hook, its hold, the end of that, and the list of ends
		t.Errorf("%.2f allocations more than %.2f; want 4", more, without)
	}
}

// secrets are the tokens of a test.
type secrets struct {
	mu     sync.Mutex
	tokens []string
}

func (s *secrets) watch(next locker.Locker) locker.Locker { return spy{next, s} }

type spy struct {
	locker.Locker
	secrets *secrets
}

func (s spy) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if req.Token != "" {
		s.secrets.mu.Lock()
		s.secrets.tokens = append(s.secrets.tokens, req.Token)
		s.secrets.mu.Unlock()
	}
	return s.Locker.Acquire(ctx, req)
}
