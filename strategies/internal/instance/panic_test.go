package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A hook of a client library may panic in a program that recovers. An attempt that never returned
// frees its slot when it is cleaned up.
func TestAttemptsThatPanicKeepNoSlot(t *testing.T) {
	one, old := &panics{Store: memory.New()}, &panicsToo{LegacyStore: memory.New().Legacy()}
	for name, tt := range map[string]struct {
		l     locker.Locker
		broke *bool
	}{
		"single":        {single.New(one), &one.broken},
		"legacy expire": {legacy.Expire(old), &old.broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				try := func() (err error) {
					defer func() { _ = recover() }()
					_, err = tt.l.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: 10 * time.Second})
					return err
				}
				*tt.broke = true
				for range 10_001 {
					_ = try()
					synctest.Wait()
				}
				*tt.broke = false
				time.Sleep(20 * time.Second)
				if err := try(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type panics struct {
	backends.Store
	broken bool
}

func (s *panics) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if s.broken {
		panic("hook")
	}
	return s.Store.SetNX(ctx, key, value, ttl)
}

type panicsToo struct {
	backends.LegacyStore
	broken bool
}

func (s *panicsToo) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	if s.broken {
		panic("hook")
	}
	return s.LegacyStore.SetNXForever(ctx, key, value)
}
