package pgxstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestGuard(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	store := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	for name, strategy := range map[string]locker.Locker{"lock": single.New(store), "hold": semaphore.New(store, 2)} {
		t.Run(name, func(t *testing.T) {
			locks := locker.New(strategy, locker.WithTTL(10*time.Minute))
			l, err := locks.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Guard(t.Context(), pgxstore.InTx(tx), l.Lease()); err != nil {
				t.Errorf("Guard of a lock that is held = %v", err)
			}

			if err := expire(t, pool, name); err == nil {
				t.Error("the key was changed while the transaction was open")
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			if err := expire(t, pool, name); err != nil {
				t.Error(err)
			}
			err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return store.Guard(t.Context(), pgxstore.InTx(tx), l.Lease())
			})
			if !errors.Is(err, locker.ErrLost) {
				t.Errorf("Guard of a lock that has ended = %v; want one that matches ErrLost", err)
			}
		})
	}
}

// expire ends the life of a key as a call does, unless its row is locked for long.
func expire(t *testing.T, pool *pgxpool.Pool, key string) error {
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = 100")
		if err == nil {
			_, err = tx.Exec(t.Context(), "SELECT FROM lockstep.lock WHERE key = $1 FOR UPDATE", []byte(key))
		}
		if err == nil {
			_, err = tx.Exec(t.Context(), "UPDATE lockstep.lock SET expires = '-infinity' WHERE key = $1", []byte(key))
		}
		return err
	})
}

func TestGuardOfAnotherHoldersLockIsLost(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	store := pgxstore.New(pool, pgxstore.WithPrefix("app/"), pgxstore.WithMaxTTL(maxTTL))
	for token, lost := range map[string]bool{"mine": false, "another": true} {
		if _, err := store.SetNX(t.Context(), "k", "mine", time.Minute); err != nil {
			t.Fatal(err)
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return store.Guard(t.Context(), pgxstore.InTx(tx), contract.Lease{Key: "k", Token: token})
		})
		if errors.Is(err, locker.ErrLost) != lost || (err != nil) != lost {
			t.Errorf("Guard with the token %q = %v", token, err)
		}
	}
}

func TestCheck(t *testing.T) {
	safe := pgtest.Start(t)
	pool := dial(t, safe.DSN())
	r, err := pgxstore.New(pool).Check(trial.Patient(t))
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, r.Findings, "install")
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	if r, err = pgxstore.New(pool).Check(trial.Patient(t)); err != nil || !r.Wakes || r.Role != "master" {
		t.Errorf("Check = %v, %v; want a master with wake-ups", r, err)
	}
	wantProblems(t, r.Findings)

	outside{t, pool}.exec("ALTER TABLE lockstep.lock SET UNLOGGED")
	if r, err = pgxstore.New(pool).Check(trial.Patient(t)); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, r.Findings, "persistence")

	standby := safe.Standby(t)
	if r, err = pgxstore.New(dial(t, standby.DSN())).Check(trial.Patient(t)); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, r.Findings, "role", "persistence", "wakes")

	unsafe := pgtest.Start(t, "fsync=off", "synchronous_commit=off", "default_transaction_isolation=serializable")
	if r, err = pgxstore.New(install(t, unsafe.DSN()), pgxstore.WithListener(unsafe.Pooler(t))).Check(trial.Patient(t)); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, r.Findings, "persistence", "persistence", "isolation", "wakes")
	if r.Err("persistence") != nil || r.Err() == nil {
		t.Errorf("Err = %v, and %v with persistence allowed", r.Err(), r.Err("persistence"))
	}
}

func wantProblems(t *testing.T, found backends.Findings, want ...backends.Problem) {
	t.Helper()
	same := len(found) == len(want)
	for i := range want {
		same = same && found[i].Problem == want[i]
	}
	if !same {
		t.Errorf("found %v; want problems %v", found, want)
	}
}
