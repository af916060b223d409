package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/race"
)

func TestContract(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		if d.name == sqlite.name {
			race.LeaveOut(t)
		}
		db := d.fresh(t)
		start := func(t *testing.T) (store, outside) { return db.store(), outside{t, db} }
		t.Run("Store", func(t *testing.T) {
			backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.Store, backendtest.Outside) { return start(t) }})
		})
		t.Run("NumberedStore", func(t *testing.T) {
			backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true, NoQueue: true,
				New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) { return start(t) }})
		})
		t.Run("FencedStore", func(t *testing.T) {
			backendtest.RunFenced(t, backendtest.FencedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true, Clock: true,
				New: func(t *testing.T) (backends.FencedStore, backendtest.Outside) { return start(t) }})
		})
		t.Run("SharedStore", func(t *testing.T) {
			backendtest.RunShared(t, backendtest.SharedHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.SharedStore, backendtest.SharedOutside) { return start(t) }})
		})
		t.Run("Inspector", func(t *testing.T) {
			backendtest.RunInspector(t, backendtest.InspectorHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backendtest.InspectedStore, backendtest.SharedOutside) { return start(t) }})
		})
		t.Run("TransferStore", func(t *testing.T) {
			backendtest.RunTransfer(t, backendtest.TransferHarness{MaxTTL: maxTTL, Resolution: d.resolution, NoWatch: true,
				New: func(t *testing.T) (backends.TransferStore, backendtest.SharedOutside) { return start(t) }})
		})
		outside{t, db}.exec("CREATE TABLE application (n BIGINT NOT NULL)")
		t.Run("Guard", func(t *testing.T) {
			backendtest.RunGuard(t, backendtest.GuardHarness{MaxTTL: maxTTL, Resolution: d.resolution,
				New: func(t *testing.T) (backendtest.GuardedStore, backendtest.SharedOutside) {
					s, o := start(t)
					return transactions{s, db}, o
				}})
		})
	})
}

// transactions are those of an application that are guarded.
type transactions struct {
	store
	db database
}

var isolations = map[string]sql.IsolationLevel{
	"the default": sql.LevelDefault, "read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead,
	"serializable": sql.LevelSerializable, "read uncommitted": sql.LevelReadUncommitted,
}

func (s transactions) Isolations() []string {
	if s.db.dialect.driver == "sqlite" {
		return []string{"the default"} // which is serializable
	}
	return slices.Sorted(maps.Keys(isolations))
}

func (s transactions) Begin(ctx context.Context, isolation string) (commit func(key, token string, shared bool, between func()) error, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: isolations[isolation]})
	if err != nil {
		return nil, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM application").Scan(&n); err != nil {
		return nil, err
	}
	return func(key, token string, _ bool, between func()) error {
		if err := s.Guard(ctx, sqlstore.InTx(tx), lease(key, token)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		between()
		return tx.Commit()
	}, nil
}
