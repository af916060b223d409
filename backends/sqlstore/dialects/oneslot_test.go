package dialects_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/mariadbtest"
)

// A call that takes a lock reads the row and writes it. On a server without a free slot, the one connection of
// the program is enough, whatever the limit of its pool.
func TestAGrantNeedsOneConnection(t *testing.T) {
	t.Parallel()
	const limits = 7
	server := mariadbtest.Start(t, "innodb-flush-log-at-trx-commit=2", fmt.Sprint("max-connections=", limits+3))
	var programs [limits]database
	for most := range programs {
		db := mariadb.dial(t, server.DSN()+"?interpolateParams=true")
		db.SetMaxOpenConns(most) // 0: none
		if err := mariadb.install(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		programs[most] = db
	}
	useUp(t, server)
	for most, db := range programs {
		if n := db.Stats().OpenConnections; n != 1 {
			t.Fatalf("the program has %d connections at first; want one", n)
		}
		if r, err := db.store().SetNX(t.Context(), fmt.Sprint("key", most), "token", time.Minute); err != nil || !r.OK {
			t.Errorf("SetNX with %d connections at most = %+v, %v", most, r, err)
		}
	}
}
