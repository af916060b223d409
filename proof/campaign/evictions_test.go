package campaign

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestForcedReleases evicts holds of Redis while their Clients renew and release them. See
// rivals.ForcedReleases, whose own test shows what it finds out.
//
//	go test ./proof/campaign -run TestForcedReleases -v                      30 evictions
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestForcedReleases -v   1,000
func TestForcedReleases(t *testing.T) {
	t.Parallel()
	store := libraries[0].dial(t, redistest.Start(t).Addr()).store
	for _, kind := range []rivals.Kind{rivals.OneHolder(store), rivals.TwoHolders(store), rivals.ReadersOrAWriter(store)} {
		t.Run(kind.Name, func(t *testing.T) {
			rivals.ForcedReleases{Kind: kind, Store: store, TTL: 600 * time.Millisecond}.Run(t)
		})
	}
}
