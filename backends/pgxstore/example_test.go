package pgxstore_test

import (
	"context"
	"errors"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
)

// A payment must not be booked by a holder whose lease has ended.
func Example_guard() {
	err := pay(context.Background())
	switch {
	case errors.Is(err, locker.ErrLost):
		log.Print("the lease ended before the commit: nothing was booked")
	case err != nil:
		log.Print(err)
	}
}

func pay(ctx context.Context) error {
	store, own, err := pgxstore.Open(ctx, "postgres://app@db.example/app") // a pool for the locks
	if err != nil {
		return err
	}
	defer own.Close()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example/app") // and one for the application
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pgxstore.Install(ctx, own); err != nil { // the tables and functions, if they are not there yet
		return err
	}
	locks := locker.New(fair.New(store))
	return locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
		if _, err := tx.Exec(ctx, "UPDATE invoices SET paid = true WHERE id = 42"); err != nil {
			return err
		}
		if err := store.Guard(ctx, pgxstore.InTx(tx), l.Lease()); err != nil { // the last statement before Commit
			return err
		}
		return tx.Commit(ctx)
	})
}
