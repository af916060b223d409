package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func lease(key, token string) contract.Lease { return contract.Lease{Key: key, Token: token} }

func TestGuard(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s := db.store()
		for name, strategy := range map[string]locker.Locker{"lock": single.New(s), "hold": semaphore.New(s, 2)} {
			locks := locker.New(strategy, locker.WithTTL(10*time.Minute))
			l, err := locks.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Guard(t.Context(), sqlstore.InTx(tx), l.Lease()); err != nil {
				t.Errorf("%s: Guard of a lock that is held = %v", name, err)
			}
			if err := expire(t, db, name); err == nil {
				t.Errorf("%s: the key was changed while the transaction was open", name)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			if err := expire(t, db, name); err != nil {
				t.Error(err)
			}
			if err := guardOnce(t, db, l.Lease()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: Guard of a lock that has ended = %v; want one that matches ErrLost", name, err)
			}
		}
	})
}

// expire ends the life of a key, unless another transaction is in the way.
func expire(t *testing.T, db database, key string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "UPDATE lockstep_lock SET expires = 0 WHERE `key` = ?", []byte(key))
	if err != nil && ctx.Err() == nil {
		t.Errorf("unexpected: %v", err)
	}
	return err
}

func guardOnce(t *testing.T, db database, l contract.Lease) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return db.store(sqlstore.WithPrefix("app/")).Guard(t.Context(), sqlstore.InTx(tx), l)
}

func TestGuardOfAnotherHoldersLockIsLost(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		if _, err := db.store(sqlstore.WithPrefix("app/")).SetNX(t.Context(), "k", "mine", time.Minute); err != nil {
			t.Fatal(err)
		}
		for l, lost := range map[contract.Lease]bool{lease("k", "mine"): false, lease("k", "another"): true, lease("other", "mine"): true} {
			if err := guardOnce(t, db, l); errors.Is(err, locker.ErrLost) != lost || (err != nil) != lost {
				t.Errorf("Guard(%v) = %v", l, err)
			}
		}
	})
}

// The transaction has read what is older than the lease of the next holder. Guard must not read the same.
func TestGuardSeesWhatOthersHaveCommittedSinceTheTransactionBegan(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s := db.store()
		outside{t, db}.exec("CREATE TABLE counter (n BIGINT NOT NULL)")
		if _, err := s.SetNX(t.Context(), "k", "mine", time.Minute); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: map[string]sql.IsolationLevel{"mysql": sql.LevelRepeatableRead}[d.driver]})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM counter").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.DeleteIf(t.Context(), "k", "mine"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if r, err := s.SetNX(t.Context(), "k", "theirs", time.Minute); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		err = s.Guard(t.Context(), sqlstore.InTx(tx), lease("k", "mine"))
		if d.driver == "sqlite" { // it may not write any more
			wantClass(t, "Guard", err, false, true)
		} else if !errors.Is(err, locker.ErrLost) {
			t.Errorf("Guard = %v; want one that matches ErrLost", err)
		}
	})
}

// What Example_guard does is done on a server, too.
func TestTheExampleOfAGuardWithMySQL(t *testing.T) {
	db := mariadb.dial(t, mariadb.dsn(t))
	outside{t, db}.exec("CREATE TABLE invoices (id INT PRIMARY KEY, paid BOOLEAN NOT NULL)")
	outside{t, db}.exec("INSERT INTO invoices VALUES (42, FALSE)")
	if err := pay(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	var paid bool
	if err := db.QueryRowContext(t.Context(), "SELECT paid FROM invoices WHERE id = 42").Scan(&paid); err != nil || !paid {
		t.Errorf("paid %v, %v", paid, err)
	}
	if locks, err := db.store().Inspect(trial.Patient(t), "invoice/42"); err != nil || locks.Holding != 0 {
		t.Errorf("Inspect = %+v, %v; want the lock to be released", locks, err)
	}
}
