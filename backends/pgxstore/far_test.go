package pgxstore_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/far"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// As TestFarClientsTakeTurns of package strategies, on PostgreSQL.
func TestFarClientsTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		over           func(s *sqlstore.PostgreSQL) locker.Locker
		ordered, alone bool
	}{
		"fair":   {func(s *sqlstore.PostgreSQL) locker.Locker { return fair.New(s) }, true, true},
		"rwlock": {func(s *sqlstore.PostgreSQL) locker.Locker { return rwlock.New(s).Writers() }, true, true},
		"single": {func(s *sqlstore.PostgreSQL) locker.Locker { return single.New(s) }, false, false},
		"fenced": {func(s *sqlstore.PostgreSQL) locker.Locker { return fenced.New(s) }, false, false},
		"semaphore": {func(s *sqlstore.PostgreSQL) locker.Locker {
			return semaphore.New(s, 1, semaphore.WithOrder())
		}, true, true},
	} {
		if name != "fair" && !full.Size() { // the fault far of the simulation plays all of them
			continue
		}
		for _, roundTrip := range far.RoundTrips() {
			t.Run(name+"/"+roundTrip.String(), func(t *testing.T) {
				t.Parallel()
				server := pgtest.Start(t)
				store := pgxstore.New(install(t, server.DSN()))
				_, port, err := net.SplitHostPort(far.Relay(t, fmt.Sprint("127.0.0.1:", server.Port()), roundTrip))
				if err != nil {
					t.Fatal(err)
				}
				var clients []*locker.Client
				for range far.Clients {
					pool := dial(t, fmt.Sprintf("host=127.0.0.1 port=%s user=postgres dbname=postgres sslmode=disable", port))
					clients = append(clients, locker.New(c.over(pgxstore.New(pool)), locker.WithTTL(30*time.Second)))
				}
				far.Run(t, roundTrip, store, locker.New(c.over(store)), clients, c.ordered, c.alone)
			})
		}
	}
}
