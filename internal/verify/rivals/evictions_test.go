package rivals_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/verify/rivals"
)

// The campaign finds nothing in the store in memory, and two Evicts that are wrong.
func TestForcedReleases(t *testing.T) {
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
					f := rivals.ForcedReleases{Kind: kind(store), Store: store, Evict: c.evict(store), TTL: 600 * time.Millisecond, Many: 500}
					if wrong := f.Violations(t); (len(wrong) > 0) != c.broken {
						t.Errorf("%d violations, such as %q", len(wrong), wrong[:min(len(wrong), 3)])
					}
				})
			}
		})
	}
}
