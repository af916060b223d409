package differential

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// hasty are stores that are right if no other call comes between their steps.
var hasty = map[string]func(b *broken, s *memory.Store){
	"SetNX looks, then stores": func(b *broken, s *memory.Store) {
		b.setNX = func(_ context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			old, left, found := s.Get(key)
			if found && old != value {
				return backends.Result{Left: left, Foreign: left == 0}, nil
			}
			runtime.Gosched()
			s.Set(key, value, ttl)
			return backends.Result{OK: true}, nil
		}
	},
	"DeleteIf looks, then deletes": func(b *broken, s *memory.Store) {
		b.deleteIf = func(_ context.Context, key, value string) (bool, error) {
			if old, _, found := s.Get(key); !found || old != value {
				return false, nil
			}
			runtime.Gosched()
			s.Delete(key)
			return true, nil
		}
	},
	"GetSet gets, then sets": func(b *broken, s *memory.Store) {
		b.getSet = func(_ context.Context, key, value string) (string, bool, error) {
			old, _, found := s.Get(key)
			runtime.Gosched()
			s.Set(key, value, 0)
			return old, found, nil
		}
	},
	"SetNX answers before it stores": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			if old, left, found := s.Get(key); found && old != value {
				return backends.Result{Left: left, Foreign: left == 0}, nil
			}
			go func() { _, _ = s.SetNX(context.WithoutCancel(ctx), key, value, ttl) }()
			return backends.Result{OK: true}, nil
		}
	},
}

func TestAStoreThatLooksBeforeItActsHasNoOrder(t *testing.T) {
	for name, breaks := range hasty {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(500) { // the first or second, as a rule
				s := memory.New(memory.WithMaxTTL(maxTTL))
				b := &broken{LegacyStore: s.Legacy()}
				breaks(b, s)
				history := record(t, seed, 10*perKey, parts[0], b, rules{})
				if !porcupine.CheckOperations(rules{}.asModel(), history) {
					t.Logf("found in history %d", seed+1)
					return
				}
			}
			t.Error("it is not found")
		})
	}
}
