// Package pgxstore makes a pool of pgx a store of locks in PostgreSQL, whose waiters are woken by a release:
//
//	store, pool, err := pgxstore.Open(ctx, "postgres://…")
//	err = pgxstore.Install(ctx, pool) // once: the tables and functions, in the schema lockstep
//	locks := locker.New(fair.New(store))
//
// What the store promises is written at [sqlstore.PostgreSQL].
//
// Each call is one statement in the mode pgx.QueryExecModeExec: one round trip, without a prepared
// statement, so a pooler such as PgBouncer may give each transaction another connection. Such a pooler
// brings no wake-ups. Give the store a connection string past the pooler with [WithListener].
//
// A lock needs connections while the transactions of the application use theirs. So [Open] makes a pool
// for the locks: let the application have another one. Locks on the pool of the application, by [New], are
// not lost when its transactions use all of it: while a lock is held for longer than a moment, the store
// has up to two connections beside the pool for renewals and releases. But only calls that wait already
// get a lock then. The error of the others has the ErrorType pool_exhausted and says that nothing was sent.
//
// A program that waits for a lock has one connection: it listens for the release, sends the attempts, and
// after a grant the renewals and the release. It comes out of the pool. The pool of [Open] closes its
// other connections once they were idle for some seconds. A pool that the program made for [New] keeps
// them for as long as it is set to.
//
// pgx closes a connection whose call was cancelled. [Open] has it wait for the answer for a moment more.
// A program that makes its own pool for [New] gets the same by [Configure].
package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// Store is what [New] and [Open] return.
type Store = sqlstore.PostgreSQL

// An Option changes a store.
type Option func(*config)

type config struct {
	store   []sqlstore.Option
	direct  *pgx.ConnConfig
	polling bool
	invalid error
}

// WithPrefix puts prefix before every key, so that programs can share the tables.
func WithPrefix(prefix string) Option {
	return func(c *config) { c.store = append(c.store, sqlstore.WithPrefix(prefix)) }
}

// WithMaxTTL sets the longest TTL that the store takes; backends.DefaultMaxTTL, 30 seconds, without it.
func WithMaxTTL(ttl time.Duration) Option {
	return func(c *config) { c.store = append(c.store, sqlstore.WithMaxTTL(ttl)) }
}

// WithListener opens the connection for wake-ups with another connection string than that of the pool:
// past a pooler, to the same database.
func WithListener(connString string) Option {
	return func(c *config) { c.direct, c.invalid = pgx.ParseConfig(connString) }
}

// WithoutWakes opens no connection for wake-ups: waiters poll, and there is no order.
func WithoutWakes() Option { return func(c *config) { c.polling = true } }

// Open opens a pool that is fit for locks (see [Configure]) and returns a store on it together with the
// pool, for the caller to close. It connects when it is first used. Its connections have the
// application_name lockstep, unless connString or the environment gives another one.
func Open(ctx context.Context, connString string, opts ...Option) (*Store, *pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(connString)
	if err != nil {
		return nil, nil, fmt.Errorf("lockstep: open: %w", err)
	}
	Configure(config)
	name(config.ConnConfig, nameLocks)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, fmt.Errorf("lockstep: open: %w", err)
	}
	return newStore(pool, giveBack(pool), opts), pool, nil
}

// New returns a store that uses the pool, one more connection while someone waits, and up to two while locks
// are held. The first is taken out of the pool if it has an idle one: it counts for the pool no longer.
// The others are opened as the pool opens its own. They are closed a second or two after the last lock.
// The caller closes the pool.
//
// If an idle connection is silent, the store tests all that are idle, within a second. The pool calls
// PrepareConn and BeforeAcquire for one after the other in that second, and those that are not done are
// closed.
func New(pool *pgxpool.Pool, opts ...Option) *Store { return newStore(pool, nil, opts) }

func newStore(pool *pgxpool.Pool, quiet func(), opts []Option) *Store {
	var c config
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	if pool == nil || c.invalid != nil {
		why := "the *pgxpool.Pool is nil"
		if c.invalid != nil {
			why = fmt.Sprintf("pgxstore.WithListener: %v", c.invalid)
		}
		return sqlstore.PostgreSQLOver(broken(why), nil, c.store...)
	}
	s := shared{pool, pool.Config(), new(lender), newUses()}
	var listener sqlstore.Listener
	switch {
	case c.polling:
	case c.direct != nil:
		name(c.direct, nameWakes)
		listener = listens{func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, c.direct) }, addresses(c.direct), nil, 0, nil}
	default:
		listener = listens{s.listener, addresses(s.config.ConnConfig), s.lender, s.age(), quiet}
	}
	c.store = append(c.store, sqlstore.WithAddress(addresses(s.config.ConnConfig)))
	return sqlstore.PostgreSQLOver(s, listener, c.store...)
}

// addresses are where a connection is opened to, as host:port: the first, and those that follow if it fails.
func addresses(c *pgx.ConnConfig) string {
	all := []string{address(c.Host, c.Port)}
	for _, other := range c.Fallbacks {
		if addr := address(other.Host, other.Port); !slices.Contains(all, addr) { // without TLS, the same one may come again
			all = append(all, addr)
		}
	}
	return strings.Join(all, ",")
}

func address(host string, port uint16) string {
	_, addr := pgconn.NetworkAddress(host, port)
	return addr
}

// locate puts addr before an error that does not have it.
func locate(addr string, err error) error {
	if err == nil || strings.Contains(err.Error(), addr) {
		return err
	}
	return fmt.Errorf("postgresql at %s: %w", addr, err)
}

// Configure changes how connections of c end calls: a connection is closed only if the server has not
// answered 50 ms after the end of the ctx. So a call may return that much later than its ctx ends. Without
// this, short deadlines make pgx open a new connection for nearly every call.
//
// A pool of pgx tests a connection that was idle for over a second, by default without a limit: one that a
// NAT has forgotten would hold up a call of the application for minutes. Configure gives the test a second,
// unless c has a PingTimeout. A store tests idle connections itself.
func Configure(c *pgxpool.Config) {
	if c.PingTimeout == 0 {
		c.PingTimeout = time.Second
	}
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn(), DeadlineDelay: answerLimit}
	}
}

// The names of connections, for operators.
const (
	nameLocks    = "lockstep"
	nameRenewals = "lockstep renewals"
	nameWakes    = "lockstep wake-ups"
)

// name names a connection, unless the user has named it.
func name(c *pgx.ConnConfig, text string) {
	if unnamed(c) {
		c.RuntimeParams["application_name"] = text
	}
}

func unnamed(c *pgx.ConnConfig) bool {
	is := c.RuntimeParams["application_name"]
	return is == "" || is == nameLocks
}

const answerLimit = 50 * time.Millisecond

// unsent tells of an error before anything was sent.
func unsent(err error) error {
	if err == nil || !pgconn.SafeToRetry(err) && !errors.As(err, new(*pgconn.ConnectError)) {
		return err
	}
	return backends.NotSent(err)
}

// broken refuses every call.
type broken string

func (b broken) Acquire(context.Context) (sqlstore.Conn, error) { return nil, backends.Invalid(b) }
func (b broken) Open(context.Context) (sqlstore.Conn, error)    { return nil, backends.Invalid(b) }
func (broken) Room() bool                                       { return true }
func (broken) Max() (int, string)                               { return 0, "" }

// Install runs [sqlstore.PostgreSQLSchema] in one transaction. Programs may call it at every start, several
// at once.
func Install(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return backends.Invalid("lockstep: install: the *pgxpool.Pool is nil")
	}
	return sqlstore.InstallPostgreSQLBy(ctx, func(ctx context.Context, statements []string) error {
		return locate(addresses(pool.Config().ConnConfig), unsent(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for _, statement := range statements {
				if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeExec); err != nil {
					return err
				}
			}
			return nil
		})))
	})
}

// InTx runs a statement in a transaction of the application, for [sqlstore.PostgreSQL.Guard]:
//
//	err := store.Guard(ctx, pgxstore.InTx(tx), lock.Lease())
func InTx(tx pgx.Tx) sqlstore.Executor { return within{tx} }

type within struct{ tx pgx.Tx }

func (w within) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	if w.tx == nil {
		return backends.Invalid("the pgx.Tx is nil")
	}
	return w.tx.QueryRow(ctx, statement, args...).Scan(dest...)
}
