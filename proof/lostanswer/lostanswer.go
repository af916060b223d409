// Package lostanswer has a driver for database/sql that says driver.ErrBadConn of a statement that was done,
// as lib/pq does when the server or a proxy ends the connection before the answer. The store sends it again.
package lostanswer

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A Store is one of an SQL database.
type Store interface {
	backends.FencedStore
	backends.SharedTransferStore
	backends.TransferStore
	backends.Evictor
}

// Answers are those of a *sql.DB.
type Answers struct {
	mu   sync.Mutex
	lose string // the answer to the next statement with this text; empty: none
	lost int
}

// Open is sql.Open with the driver of db, whose answers can get lost.
func Open(t *testing.T, db *sql.DB, dsn string) (*sql.DB, *Answers) {
	t.Helper()
	inner, err := db.Driver().(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	a := new(Answers)
	lossy := sql.OpenDB(connector{inner, a})
	t.Cleanup(func() { _ = lossy.Close() })
	return lossy, a
}

func (a *Answers) loseNext(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lose, a.lost = to, 0
}

func (a *Answers) hasLost() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lose = ""
	return a.lost > 0
}

func (a *Answers) isLost(statement string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lose == "" || !strings.Contains(statement, a.lose) {
		return false
	}
	a.lose = ""
	a.lost++
	return true
}

type connector struct {
	driver.Connector

	answers *Answers
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner.(full), c.answers}, nil
}

// full is what the drivers of the tests can do.
type full interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
	driver.Pinger
}

type conn struct {
	full

	answers *Answers
}

func (c *conn) ExecContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.full.ExecContext(ctx, statement, args)
	if err == nil && c.answers.isLost(statement) {
		_ = c.Close()
		return nil, driver.ErrBadConn
	}
	return r, err
}

func (c *conn) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.full.QueryContext(ctx, statement, args)
	if err != nil || !c.answers.isLost(statement) {
		return rows, err
	}
	for row := make([]driver.Value, len(rows.Columns())); err == nil; {
		err = rows.Next(row)
	}
	_ = rows.Close()
	if errors.Is(err, io.EOF) { // it is done
		_ = c.Close()
		err = driver.ErrBadConn
	}
	return nil, err
}

const (
	ttl   = 20 * time.Second
	token = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	next  = "BBCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// Run loses the answer to each kind of call over lossy, a store on the *sql.DB of answers. each names a text
// of the statement that each call sends. plain is a store on the same tables.
func Run(t *testing.T, lossy, plain Store, answers *Answers, each map[string]string) {
	ctx := t.Context()
	granted := func(r backends.Result, err error) (bool, error) { return r.OK, err }
	group := backends.Admission{Group: "group", Limit: 2}
	take := func(key string) (bool, error) { return granted(plain.SetNX(ctx, key, token, ttl)) }
	enter := func(key string) (bool, error) { return granted(plain.Enter(ctx, key, token, ttl, group)) }
	nothing := func(string) (bool, error) { return true, nil }
	for call, c := range map[string]struct {
		first, then func(key string) (bool, error)
		answered    bool // a repetition gets the same answer
	}{
		"SetNX":    {nothing, func(key string) (bool, error) { return granted(lossy.SetNX(ctx, key, token, ttl)) }, false},
		"ExpireIf": {take, func(key string) (bool, error) { return lossy.ExpireIf(ctx, key, token, ttl) }, true},
		"DeleteIf": {take, func(key string) (bool, error) { return lossy.DeleteIf(ctx, key, token) }, false},
		"Transfer": {take, func(key string) (bool, error) { return granted(lossy.Transfer(ctx, key, token, next, ttl, true)) }, false},
		"RaiseFence": {
			func(key string) (bool, error) { return granted(plain.SetNXFenced(ctx, key, token, ttl)) },
			func(key string) (bool, error) { return lossy.RaiseFence(ctx, key, token, 7) }, false,
		},
		"Evict": {take, func(key string) (bool, error) {
			return lossy.Evict(ctx, key, backends.PrintOf(token), backends.Eviction{Now: true})
		}, false},
		"Enter": {nothing, func(key string) (bool, error) { return granted(lossy.Enter(ctx, key, token, ttl, group)) }, false},
		"Renew": {enter, func(key string) (bool, error) { return lossy.Renew(ctx, key, token, ttl) }, true},
		"Leave": {enter, func(key string) (bool, error) { return lossy.Leave(ctx, key, token) }, false},
		"TransferHold": {enter, func(key string) (bool, error) {
			return granted(lossy.TransferHold(ctx, key, token, next, ttl, group.Group, true))
		}, false},
	} {
		t.Run(call, func(t *testing.T) {
			if ok, err := c.first(call); err != nil || !ok {
				t.Fatal(ok, err)
			}
			answers.loseNext(each[call])
			ok, err := c.then(call)
			if !answers.hasLost() {
				t.Fatal("no answer was lost")
			}
			if err == nil && !ok || err != nil && (c.answered || backends.Permanent(err) || backends.Unsent(err)) {
				t.Errorf("%v, %v; want that it was done, or that the outcome is unknown", ok, err)
			}
		})
	}
	t.Run("a renewal of what is lost", func(t *testing.T) {
		answers.loseNext(each["ExpireIf"])
		if ok, err := lossy.ExpireIf(ctx, "lost", token, ttl); ok || err != nil || !answers.hasLost() {
			t.Errorf("%v, %v; want false: nobody has it", ok, err)
		}
	})
	locks := locker.New(single.New(lossy))
	t.Run("Unlock", func(t *testing.T) {
		l, err := locks.Lock(ctx, "Unlock")
		if err != nil {
			t.Fatal(err)
		}
		answers.loseNext(each["DeleteIf"])
		if err := l.Unlock(ctx); err != nil || !answers.hasLost() {
			t.Errorf("%v; want nil: the lock was released", err)
		}
	})
	t.Run("Do", func(t *testing.T) {
		err := locks.Do(ctx, "Do", func(context.Context, *locker.Lock) error {
			answers.loseNext(each["DeleteIf"])
			return nil
		})
		if err != nil || !answers.hasLost() {
			t.Errorf("%v; want nil: the work went well, and the lock was released", err)
		}
	})
}
