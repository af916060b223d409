package pgxstore_test

import (
	"database/sql"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// The application may use the same connection. What the driver has prepared is gone then: nothing is done.
func TestACallAfterDiscardAllSaysThatNothingWasDone(t *testing.T) {
	dsn := pgtest.Start(t, "fsync=off").DSN()
	install(t, dsn)
	for _, discard := range []string{"DISCARD ALL", "DEALLOCATE ALL"} {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1)
		s := sqlstore.NewPostgreSQL(db, sqlstore.WithMaxTTL(maxTTL))
		granted(t)(s.SetNX(t.Context(), discard, "token", maxTTL))
		if _, err := db.ExecContext(t.Context(), discard); err != nil {
			t.Fatal(err)
		}
		if r, err := s.SetNX(t.Context(), discard, "token", maxTTL); err != nil && !backends.Unsent(err) {
			t.Errorf("SetNX after %s = %+v, %v; want it granted, or nothing done", discard, r, err)
		}
		granted(t)(s.SetNX(t.Context(), discard, "token", maxTTL))
	}
}
