package dialects_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestForcedReleases evicts holds while their Clients renew and release them: 30 of each kind, and
// 1,000 with LOCKSTEP_TORTURE=1.
func TestForcedReleases(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		store, keys := d.fresh(t).store(), 0
		if d.name == sqlite.name {
			keys = 5 // all writers wait for one file: with more of them, a busy machine grants locks that have ended
		}
		for _, kind := range []rivals.Kind{rivals.OneHolder(store), rivals.TwoHolders(store)} {
			t.Run(kind.Name, func(t *testing.T) {
				rivals.ForcedReleases{Kind: kind, Store: store, TTL: time.Second, Keys: keys}.Run(t)
			})
		}
	})
}
