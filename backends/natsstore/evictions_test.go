package natsstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestForcedReleases evicts holds while their Clients renew and release them: 30, and
// 1,000 with LOCKSTEP_TORTURE=1.
func TestForcedReleases(t *testing.T) {
	rivals.TwoAtOnce(t)
	store := natsstore.New(install(t))
	rivals.ForcedReleases{Kind: rivals.OneHolder(store), Store: store, TTL: 2 * time.Second}.Run(t)
}
