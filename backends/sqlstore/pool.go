package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// A Pool gives connections to a store. It is for packages that adapt a database driver; see
// [PostgreSQLOver].
type Pool interface {
	pool

	// Open makes a connection that the pool does not count, by the same way to the same server.
	Open(ctx context.Context) (Conn, error)
}

type pool interface {
	// Acquire takes a connection of the pool. When it fails, nothing was sent for the call. If it has
	// waited in vain for others to give one back, the error is a [PoolError].
	Acquire(ctx context.Context) (Conn, error)

	// Room tells whether Acquire has a connection at once, as far as can be seen.
	Room() bool

	// Max is the most connections that the pool has, and how to let it have more. 0: as many as asked for.
	Max() (connections int, remedy string)
}

// A Conn is one connection. It sends each statement once. An error from before its first byte has a method
// Unsent() bool, which is true.
type Conn interface {
	Executor

	// Close gives the connection back to its pool, or closes it. It does not wait for the server for long.
	Close()
}

// PoolError is the error of a call that waited for a connection of the pool until its ctx ended.
// Nothing was sent.
type PoolError struct {
	Max    int    // connections of the pool
	Remedy string // how to let it have more
	Err    error  // of the ctx
}

func (e *PoolError) Error() string {
	return fmt.Sprintf("%s (%v): give the locks a pool of their own, or make this one larger (%s)", printed.InUse(e.Max), e.Err, e.Remedy)
}

func (e *PoolError) Unwrap() error { return e.Err }

// Unsent is true.
func (e *PoolError) Unsent() bool { return true }

// ErrorType is pool_exhausted.
func (e *PoolError) ErrorType() string { return "pool_exhausted" }

// checkPool adds a finding about a pool that can be too small for locks and the application. Unless the store
// opens connections beside the pool, one as small as that has no reserve either.
func (r *Report) checkPool(p pool, opens bool) {
	connections, remedy := p.Max()
	if connections <= 0 || connections >= leastPool {
		return
	}
	then := "no lock can be taken or renewed, so those that are held are lost"
	if opens {
		then = "no lock can be taken"
	}
	r.find(ProblemPool, false, "transactions of the application can use all of it, and then "+then+": "+
		"give the locks a pool of their own, or make this one larger ("+remedy+")", "the limit of connections of the pool is %d", connections)
}

const leastPool = 3 // one for the locks, and two for the application

// databasePool is a pool of database/sql.
type databasePool struct {
	db   *sql.DB
	at   *place
	seen *seen // nil: there is no server to lose
}

func (p databasePool) acquire(ctx context.Context) (*databaseConn, error) {
	if p.db == nil {
		return nil, backends.Invalid("the *sql.DB is nil")
	}
	c, err := p.living(ctx)
	if err == nil {
		p.at.ask(c)
		return &databaseConn{c}, nil
	}
	if most, remedy := p.Max(); ctx.Err() != nil && errors.Is(err, ctx.Err()) && !p.Room() {
		return nil, &PoolError{Max: most, Remedy: remedy, Err: err}
	}
	return nil, err
}

func (p databasePool) Acquire(ctx context.Context) (Conn, error) {
	c, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p databasePool) Room() bool {
	if p.db == nil {
		return true
	}
	stats := p.db.Stats()
	return stats.MaxOpenConnections <= 0 || stats.InUse < stats.MaxOpenConnections
}

func (p databasePool) Max() (int, string) {
	if p.db == nil {
		return 0, ""
	}
	return p.db.Stats().MaxOpenConnections, "SetMaxOpenConns"
}

// claims counts the connections that the stores of this process keep of each *sql.DB. The stores of one
// *sql.DB do not know each other, and together they could keep all of it from the application. An entry
// goes with its last connection.
var claims = struct {
	sync.Mutex

	kept map[*sql.DB]int
}{kept: map[*sql.DB]int{}}

// claim tells whether one more connection may be kept: at most a third of the pool, so that the
// application can always have two at once. None of a pool without a limit, where no call waits.
func (p databasePool) claim() bool {
	most, _ := p.Max()
	claims.Lock()
	defer claims.Unlock()
	if claims.kept[p.db] >= most/leastPool {
		return false
	}
	claims.kept[p.db]++
	return true
}

func (p databasePool) unclaim() {
	claims.Lock()
	defer claims.Unlock()
	if claims.kept[p.db]--; claims.kept[p.db] == 0 {
		delete(claims.kept, p.db)
	}
}

// databaseConn is a connection of a *sql.DB.
type databaseConn struct{ *sql.Conn }

func (c *databaseConn) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	return c.QueryRowContext(ctx, statement, args...).Scan(dest...)
}

func (c *databaseConn) Close() { _ = c.Conn.Close() } // it goes back to the pool
