// Package sqlstore keeps locks in tables of an SQL database. The locks are rows with an end, by the clock
// of the database server. They are no advisory locks: those belong to a connection, so a connection pooler
// can give them to another program, and nobody learns of their loss in time.
//
//	db, _ := sql.Open("pgx", "postgres://…")
//	err := sqlstore.InstallPostgreSQL(ctx, db)        // once: the tables and functions, in the schema lockstep
//	locks := locker.New(single.New(sqlstore.NewPostgreSQL(db)))
//
// Through database/sql, waiters poll. A program that uses pgx takes the store of package
// backends/pgxstore instead: there a release wakes them.
//
// There are three dialects: [NewPostgreSQL]; [NewMySQL], which is also for MariaDB; and [NewSQLite], which
// excludes the processes of one computer without a server.
//
// A lock needs connections while the transactions of the application use theirs. So give the locks a *sql.DB
// of their own: call sql.Open twice. If the application shares the *sql.DB and has limited it by
// SetMaxOpenConns, the store keeps one of at least three connections, or two of at least six, while locks
// are held. Renewals and releases use them, so no lock is lost when transactions use all others. But
// nobody gets a lock then. The error is a [PoolError] and says that nothing was sent. A smaller pool has
// none to spare: see the finding pool of Check.
//
// A load balancer or NAT forgets idle connections without a reset. So a connection that the store has not
// used for five seconds is tested by a ping. The pool loses it if it does not answer within a second.
//
// Every statement is a transaction of its own. So a store takes a *sql.DB and no *sql.Tx: a lock that a
// transaction takes is not seen by others before its end.
package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// An Executor runs one statement, which is a transaction of its own, and scans its one row into dest. It
// sends the statement once. It is for packages that adapt a database driver; see [Pool].
type Executor interface {
	Row(ctx context.Context, statement string, args []any, dest ...any) error
}

// An Option changes a store.
type Option func(*config)

type config struct {
	prefix  string
	maxTTL  time.Duration
	at      *place // of the server
	invalid error
}

// WithPrefix puts prefix before every key, so that programs can share the tables.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL], 30 seconds, without it.
func WithMaxTTL(ttl time.Duration) Option {
	return func(c *config) {
		if ttl < time.Millisecond {
			c.invalid = backends.Invalidf("sqlstore.WithMaxTTL: %v is under 1ms", ttl)
			return
		}
		c.maxTTL = ttl
	}
}

// WithAddress says where the server is, for the texts of errors: a *sql.DB does not tell the
// address that it connects to. Give it as host:port, without a password. It is not needed with the
// driver of pgx, which tells the address with the first connection, nor with
// github.com/go-sql-driver/mysql. For SQLite it is the path of the file, which is known without it
// once the file has been opened.
func WithAddress(addr string) Option { return func(c *config) { c.at.addr.Store(addr) } }

// configure makes the config of a store in a system of this name.
func configure(system string, opts []Option) config {
	c := config{maxTTL: backends.DefaultMaxTTL, at: &place{system: system}}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	return c
}

// ready refuses all calls of a store that was given bad options, and those that come too late.
func (c *config) ready(ctx context.Context) error {
	if c.invalid != nil {
		return c.invalid
	}
	if err := ctx.Err(); err != nil {
		return backends.NotSent(c.at.locate(err))
	}
	return nil
}

// prepare refuses what must not be sent. name is the key with the prefix.
func (c *config) prepare(ctx context.Context, maxValue int, key string, values ...string) (name []byte, err error) {
	if n := len(c.prefix) + len(key); n > maxKey {
		return nil, backends.Invalidf("key of %d bytes, with the prefix, is over the store's limit of %d", n, maxKey)
	}
	for _, value := range values {
		if len(value) > maxValue {
			return nil, backends.Invalidf("value of %d bytes is over the store's limit of %d", len(value), maxValue)
		}
	}
	return []byte(c.prefix + key), c.ready(ctx)
}

// check refuses a TTL that must not be sent, and gives ttl in microseconds, rounded up.
func (c *config) check(ctx context.Context, ttl time.Duration) (int64, error) {
	if err := backends.CheckTTL(ctx, ttl, c.maxTTL, "sqlstore.WithMaxTTL"); err != nil {
		return 0, err
	}
	return microseconds(ttl), c.ready(ctx)
}

func microseconds(d time.Duration) int64 {
	us := d.Microseconds()
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

var errPolling = fmt.Errorf("the database tells nobody of a release through this driver: %w", errors.ErrUnsupported)
