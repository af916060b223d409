package etcd_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestForcedReleases evicts holds while their Clients renew and release them: 30 of each kind, and
// 1,000 with LOCKSTEP_TORTURE=1.
func TestForcedReleases(t *testing.T) {
	rivals.TwoAtOnce(t)
	_, client := one(t)
	store := etcd.New(client)
	for _, kind := range []rivals.Kind{rivals.OneHolder(store), rivals.TwoHolders(store)} {
		t.Run(kind.Name, func(t *testing.T) {
			rivals.ForcedReleases{Kind: kind, Store: store, TTL: 2 * time.Second}.Run(t)
		})
	}
}
