package rivals_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// The campaign finds nothing in the store in memory, and two Evicts that are wrong.
func TestForcedReleases(t *testing.T) {
	many := 100
	if full.Size() {
		many = 500
	}
	for _, c := range []struct {
		name   string
		evict  func(s rivals.Evictions) rivals.EvictFunc
		broken bool
	}{
		{"Evict", func(s rivals.Evictions) rivals.EvictFunc { return s.Evict }, false},
		{"one that deletes", rivals.Deleting, true},
		{"one that compares nothing", rivals.ComparingNothing, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []func(s *memory.Store) rivals.Kind{
				func(s *memory.Store) rivals.Kind { return rivals.OneHolder(s) },
				func(s *memory.Store) rivals.Kind { return rivals.TwoHolders(s) },
				func(s *memory.Store) rivals.Kind { return rivals.ReadersOrAWriter(s) },
			} {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New()
					f := rivals.ForcedReleases{Kind: kind(store), Store: store, Evict: c.evict(store), TTL: 600 * time.Millisecond, Many: many}
					if wrong := f.Violations(t); (len(wrong) > 0) != c.broken {
						t.Errorf("%d violations, such as %q", len(wrong), wrong[:min(len(wrong), 3)])
					}
				})
			}
		})
	}
}

// A release whose reply comes too late frees the key all the same: the campaign does not take its
// holder for one that works on.
func TestForcedReleasesWithoutReplies(t *testing.T) {
	for _, kind := range []func(s *forgetful) rivals.Kind{
		func(s *forgetful) rivals.Kind { return rivals.OneHolder(s) },
		func(s *forgetful) rivals.Kind { return rivals.TwoHolders(s) },
		func(s *forgetful) rivals.Kind { return rivals.ReadersOrAWriter(s) },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &forgetful{memory.New()}
			rivals.ForcedReleases{Kind: kind(store), Store: store, TTL: 600 * time.Millisecond, Many: 100}.Run(t)
			time.Sleep(time.Minute) // for the releases that nobody waits for any more
		})
	}
}

// forgetful releases, and gives no reply to half of the calls.
type forgetful struct{ *memory.Store }

func (s *forgetful) DeleteIf(ctx context.Context, key, token string) (bool, error) {
	ok, err := s.Store.DeleteIf(ctx, key, token)
	return late(ctx, ok, err)
}

func (s *forgetful) Leave(ctx context.Context, key, token string) (bool, error) {
	ok, err := s.Store.Leave(ctx, key, token)
	return late(ctx, ok, err)
}

func late(ctx context.Context, ok bool, err error) (bool, error) {
	if rand.IntN(2) == 0 {
		return ok, err
	}
	<-ctx.Done()
	return false, ctx.Err()
}
