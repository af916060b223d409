package pgxstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestForcedReleases evicts holds while their Clients renew and release them: 10 of each kind, and
// 1,000 with LOCKSTEP_TORTURE=1.
func TestForcedReleases(t *testing.T) {
	rivals.TwoAtOnce(t)
	server := pgtest.Start(t)
	install(t, server.DSN())
	opened, end, err := openFor(t.Context(), server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end() }()
	store := opened.(*sqlstore.PostgreSQL)
	for _, kind := range []rivals.Kind{rivals.OneHolder(store), rivals.TwoHolders(store), rivals.ReadersOrAWriter(store)} {
		t.Run(kind.Name, func(t *testing.T) {
			rivals.ForcedReleases{Kind: kind, Store: store, TTL: time.Second}.Run(t)
		})
	}
}
