package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	_ "modernc.org/sqlite"
)

// Processes of one computer that open the same file exclude each other.
func Example_sqlite() {
	dir, err := os.MkdirTemp("", "locks")
	if err == nil {
		err = backup(context.Background(), filepath.Join(dir, "locks.db"))
	}
	_ = os.RemoveAll(dir)
	fmt.Println(err)
	// Output:
	// another program finds it held: true
	// <nil>
}

func backup(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := sqlstore.InstallSQLite(ctx, db); err != nil { // the table, if it is not there yet
		return err
	}
	store := sqlstore.NewSQLite(db)
	report, err := store.Check(ctx)
	if err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return err
	}
	return locker.New(fenced.New(store)).Do(ctx, "backup", func(ctx context.Context, l *locker.Lock) error {
		_, err := locker.New(fenced.New(store)).TryLock(ctx, "backup")
		fmt.Println("another program finds it held:", errors.Is(err, locker.ErrHeld))
		return nil
	})
}

// A file of the application has the locks, too. A change must not be committed by a holder whose lease has
// ended.
func Example_sqliteGuard() {
	dir, err := os.MkdirTemp("", "app")
	if err == nil {
		err = count(context.Background(), filepath.Join(dir, "app.db"))
	}
	_ = os.RemoveAll(dir)
	fmt.Println(err)
	// Output:
	// runs: 1
	// <nil>
}

func count(ctx context.Context, file string) error {
	// a transaction begins with BEGIN IMMEDIATE, so that it can write after it has read
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := sqlstore.InstallSQLite(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, runs INTEGER NOT NULL)"); err != nil {
		return err
	}
	store := sqlstore.NewSQLite(db)
	return locker.New(single.New(store)).Do(ctx, "report", func(ctx context.Context, l *locker.Lock) error {
		// the work stands here, before the transaction: that keeps all others from writing
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		var runs int
		err = tx.QueryRowContext(ctx, "INSERT INTO job VALUES ('report', 1) ON CONFLICT DO UPDATE SET runs = runs + 1 RETURNING runs").Scan(&runs)
		if err != nil {
			return err
		}
		fmt.Println("runs:", runs)
		if err := store.Guard(ctx, sqlstore.InTx(tx), l.Lease()); err != nil { // the last statement before Commit
			return err
		}
		return tx.Commit()
	})
}

// A payment must not be booked by a holder whose lease has ended.
func Example_guard() {
	db, err := sql.Open("mysql", "app:secret@tcp(db.example)/app?interpolateParams=true")
	if err == nil {
		err = pay(context.Background(), db)
	}
	switch {
	case errors.Is(err, locker.ErrLost):
		log.Print("the lease ended before the commit: nothing was booked")
	case err != nil:
		log.Print(err)
	}
}

func pay(ctx context.Context, db *sql.DB) error {
	if err := sqlstore.InstallMySQL(ctx, db); err != nil {
		return err
	}
	store := sqlstore.NewMySQL(db)
	return locker.New(single.New(store)).Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after Commit it does nothing
		if _, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = TRUE WHERE id = 42"); err != nil {
			return err
		}
		if err := store.Guard(ctx, sqlstore.InTx(tx), l.Lease()); err != nil { // the last statement before Commit
			return err
		}
		return tx.Commit()
	})
}
