package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Guard makes a transaction of the application depend on a lease, if both are in the same database. If the
// lease is still its holder's, nobody else gets the lock before tx ends. So of two holders of one lock, the
// one that has lost it can't commit behind the other. Unlike a number, this needs no column in the tables
// of the application.
//
// Call Guard as the last statement before Commit, since a release, an eviction and, of a shared key, each
// call that enters or leaves wait for the end of tx. A renewal does not. If the lease has ended, the error
// matches [locker.ErrLost]: roll tx back. With an isolation level above READ COMMITTED, Guard may fail with a
// conflict: if such a call was made since tx began, or if only a renewal since has kept the lease.
//
//	tx, _ := db.BeginTx(ctx, nil)
//	…                                                     // the work
//	err := store.Guard(ctx, sqlstore.InTx(tx), lock.Lease())
//	if err == nil { err = tx.Commit() } else { tx.Rollback() }
func (s *PostgreSQL) Guard(ctx context.Context, tx Executor, lease contract.Lease) error {
	return guarded(lease, func() (bool, error) {
		name, err := s.prepare(ctx, lease.Key, lease.Token)
		if err != nil {
			return false, err
		}
		var outcome int64
		err = tx.Row(ctx, "SELECT outcome FROM lockstep.guard($1,$2)", []any{name, []byte(lease.Token)}, &outcome)
		return outcome == done, s.explain(ctx, err)
	})
}

// guarded gives the error of a guard. holds tells whether the lease is its holder's.
func guarded(lease contract.Lease, holds func() (bool, error)) error {
	ok, err := holds()
	if err == nil && !ok {
		err = fmt.Errorf("%w: roll the transaction back", locker.ErrLost)
	}
	if err != nil {
		return &locker.Error{Op: "guard", Key: lease.Key, Err: err}
	}
	return nil
}

// InTx runs a statement in a transaction of the application, for [PostgreSQL.Guard], [SQLite.Guard] and
// [MySQL.Guard]. It is of no use for a store.
func InTx(tx *sql.Tx) Executor { return within{tx} }

type within struct{ tx *sql.Tx }

func (w within) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	if w.tx == nil {
		return backends.Invalid("the *sql.Tx is nil")
	}
	return w.tx.QueryRowContext(ctx, statement, args...).Scan(dest...)
}

// guard tells whether a lease is its holder's. The transaction tx keeps it so.
func (s *rows) guard(ctx context.Context, tx Executor, lease contract.Lease) error {
	return guarded(lease, func() (bool, error) {
		key, err := s.prepare(ctx, lease.Key, lease.Token)
		if err != nil {
			return false, err
		}
		if err := s.file.stays(ctx, tx); errors.As(err, new(fileMoved)) {
			return false, nil
		} else if err != nil {
			return false, s.explain(ctx, err)
		}
		var r record
		err = r.scan(func(dest ...any) error { return tx.Row(ctx, s.in.names(s.dialect.guard), []any{key}, dest...) })
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err != nil || !r.held() {
			return false, s.explain(ctx, err)
		}
		if r.kind == kindShared {
			all, err := r.shared()
			return find(all, lease.Token) >= 0, err
		}
		return r.kind == kindLock && string(r.value) == lease.Token, nil
	})
}
