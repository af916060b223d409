package pgxstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// plain is the driver of pgx without what it does more than lib/pq: it does not close a connection that an
// application has left in a transaction.
type plain struct{ dsn string }

func (p plain) Driver() driver.Driver { return nil }

func (p plain) Connect(context.Context) (driver.Conn, error) {
	c, err := stdlib.GetDefaultDriver().Open(p.dsn)
	if err != nil {
		return nil, err
	}
	type both interface {
		driver.QueryerContext
		driver.ExecerContext
	}
	return struct {
		driver.Conn
		both
	}{c, c.(both)}, nil
}

// What a call does in a transaction of the application is not seen by others, and may be undone.
func TestACallInATransactionThatExecHasBegunFails(t *testing.T) {
	dsn := pgtest.Start(t, "fsync=off").DSN()
	other := sqlstore.NewPostgreSQL(stdlib.OpenDBFromPool(install(t, dsn)), sqlstore.WithMaxTTL(maxTTL))
	db := sql.OpenDB(plain{dsn})
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	s := sqlstore.NewPostgreSQL(db, sqlstore.WithMaxTTL(maxTTL))
	granted(t)(s.SetNX(t.Context(), "lock", "token", maxTTL))
	granted(t)(s.Enter(t.Context(), "hold", "token", maxTTL, backends.Admission{Limit: 2}))
	one := func(r backends.Result, err error) (bool, error) { return r.OK, err }
	calls := map[string]func() (bool, error){
		"SetNX": func() (bool, error) { return one(s.SetNX(t.Context(), "free", "token", maxTTL)) },
		"Enter": func() (bool, error) {
			return one(s.Enter(t.Context(), "hold", "another", maxTTL, backends.Admission{Limit: 2}))
		},
		"ExpireIf":   func() (bool, error) { return s.ExpireIf(t.Context(), "lock", "token", maxTTL) },
		"Renew":      func() (bool, error) { return s.Renew(t.Context(), "hold", "token", maxTTL) },
		"RaiseFence": func() (bool, error) { return s.RaiseFence(t.Context(), "lock", "token", 7) },
		"Transfer": func() (bool, error) {
			return one(s.Transfer(t.Context(), "lock", "token", "token", maxTTL, false))
		},
		"TransferHold": func() (bool, error) {
			return one(s.TransferHold(t.Context(), "hold", "token", "token", maxTTL, "", false))
		},
	}
	ends := map[string]func() (bool, error){
		"DeleteIf": func() (bool, error) { return s.DeleteIf(t.Context(), "lock", "token") },
		"Leave":    func() (bool, error) { return s.Leave(t.Context(), "hold", "token") },
		"Evict": func() (bool, error) {
			return s.Evict(t.Context(), "hold", backends.PrintOf("another"), backends.Eviction{Now: true, Foreign: true})
		},
	}
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN")
	for _, all := range []map[string]func() (bool, error){calls, ends} {
		for name, call := range all {
			// the transaction is older than the call, by more than the answer takes
			var ok bool
			var err error
			for again := time.Millisecond; again < time.Second && !toldOfIt(err); again *= 2 {
				time.Sleep(again)
				ok, err = call()
			}
			if ok || !toldOfIt(err) || backends.Permanent(err) || backends.Unsent(err) {
				t.Errorf("%s in a transaction = %v, %v; want an unknown outcome", name, ok, err)
			}
		}
	}
	// The server does no statement of a transaction in which one has failed.
	if _, err := db.ExecContext(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("1/0 has worked")
	}
	for _, all := range []map[string]func() (bool, error){calls, ends} {
		for name, call := range all {
			if ok, err := call(); ok || !backends.Unsent(err) || !strings.Contains(err.Error(), "roll it back") {
				t.Errorf("%s in a transaction that has failed = %v, %v; want it not done, and the next step", name, ok, err)
			}
		}
	}
	exec("ROLLBACK")
	granted(t)(other.SetNX(t.Context(), "free", "other", maxTTL))
	if ok, err := other.DeleteIf(t.Context(), "free", "other"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, all := range []map[string]func() (bool, error){calls, ends} {
		for name, call := range all {
			if ok, err := call(); !ok || err != nil {
				t.Errorf("%s after the transaction = %v, %v", name, ok, err)
			}
		}
	}
}

func toldOfIt(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the connection was in a transaction")
}
