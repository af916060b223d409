package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
)

// shared is a pool that the application may use too.
type shared struct {
	pool   *pgxpool.Pool
	config *pgxpool.Config
	lender *lender
	uses   *uses
}

// Acquire implements sqlstore.Pool. While somebody waits, calls borrow the connection that listens. If
// another call has it, they wait for it only if the pool would have to open one, or is used up.
func (s shared) Acquire(ctx context.Context) (sqlstore.Conn, error) {
	if is := s.lender.session(); is != nil && is.borrow(ctx, s.pool.Stat().TotalConns() > 0 && s.Room()) {
		return &lent{session: is, pool: s}, nil
	}
	return s.acquire(ctx)
}

func (s shared) acquire(ctx context.Context) (sqlstore.Conn, error) {
	c, err := s.living(ctx)
	if err != nil {
		return nil, err
	}
	return conn{c.Conn(), c.Release}, nil
}

// living takes a connection that leads to a server.
func (s shared) living(ctx context.Context) (*pgxpool.Conn, error) {
	if s.pool.Stat().IdleConns() > 0 {
		if c, err := s.fromIdle(ctx); c != nil || err != nil {
			return c, err
		}
	}
	return s.take(ctx)
}

func (s shared) take(ctx context.Context) (*pgxpool.Conn, error) {
	c, err := s.pool.Acquire(ctx)
	if err == nil {
		return c, nil
	}
	// a pool that opens connections is not used up: then the server does not answer
	most, remedy := s.Max()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && int(s.pool.Stat().AcquiredConns()) == most {
		err = &sqlstore.PoolError{Max: most, Remedy: remedy, Err: err}
	}
	return nil, err
}

// fromIdle takes a connection that was idle. The pool tests one that was for a second, by default
// without a limit. If it is silent, all that are idle are tested together, and neither a connection
// nor an error is returned, unless ctx has ended. The pool keeps the room of the dead one for 15
// seconds, so after a pause one call is first.
func (s shared) fromIdle(ctx context.Context) (*pgxpool.Conn, error) {
	paused, next := s.uses.paused(), func() {}
	if paused {
		select {
		case s.uses.first <- struct{}{}:
			next = func() { <-s.uses.first }
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		paused = s.uses.paused() // unless another call was first
	}
	var late error
	if !paused || s.config.MaxConns > 1 {
		limited, cancel := context.WithTimeout(ctx, testLimit)
		c, err := s.take(limited)
		isLate := limited.Err() != nil
		cancel()
		if err == nil {
			s.uses.note()
		}
		if err == nil || !isLate {
			next()
			return c, err
		}
		late = err
	}
	s.testIdle(ctx, next) // also if ctx has ended: the calls that follow may have as short a one
	if ctx.Err() == nil {
		return nil, nil
	}
	return nil, cmp.Or(late, ctx.Err())
}

// testIdle tests all connections that are idle. The pool loses those that are dead. It returns when
// ctx ends, but the tests go on: pgx closes a connection whose call is cancelled. next is called when
// no other call can take one of them.
func (s shared) testIdle(ctx context.Context, next func()) {
	tested := make(chan struct{})
	go func() {
		defer close(tested)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), testLimit)
		defer cancel()
		idle := s.pool.AcquireAllIdle(limited)
		s.uses.note()
		next()
		var all sync.WaitGroup
		for _, c := range idle {
			all.Go(func() {
				if c.Ping(limited) == nil {
					c.Release()
				} else {
					go closeSoon(ctx, c.Hijack())
				}
			})
		}
		all.Wait()
	}()
	select {
	case <-tested:
	case <-ctx.Done():
	}
}

// uses knows when a store has last used its pool.
type uses struct {
	first chan struct{} // full while a call is the first after a pause

	mu   sync.Mutex
	last time.Time
}

func newUses() *uses { return &uses{first: make(chan struct{}, 1)} }

func (u *uses) note() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = time.Now()
}

// paused tells that the last use was over five seconds ago.
func (u *uses) paused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.last) >= testAfter
}

// listener makes a connection for wake-ups. It takes one out of the pool if the pool has one that is idle.
func (s shared) listener(ctx context.Context) (*pgx.Conn, error) {
	if s.config.ConnConfig.OnNotification == nil && s.pool.Stat().IdleConns() > 0 {
		short, cancel := context.WithTimeout(ctx, takeLimit)
		defer cancel()
		if c, err := s.pool.Acquire(short); err == nil { // others may have taken it meanwhile
			return c.Hijack(), nil
		}
	}
	return s.connect(ctx, nameWakes)
}

const (
	testAfter = 5 * time.Second // of idling
	testLimit = time.Second     // for the answer
	takeLimit = time.Second
	leastAge  = time.Second      // of a connection that is lent
	mostAge   = 10 * time.Minute // behind one address there may be another server by then
)

// Open implements sqlstore.Pool: it connects as the pool does.
func (s shared) Open(ctx context.Context) (sqlstore.Conn, error) {
	opened, err := s.connect(ctx, nameRenewals)
	if err != nil {
		return nil, err
	}
	return conn{opened, func() { closeSoon(ctx, opened) }}, nil
}

// age is the most for a connection that is lent: as the pool has it, if that is shorter.
func (s shared) age() time.Duration {
	if life := s.config.MaxConnLifetime; life > 0 { // else the pool keeps a connection for ever
		return min(max(life, leastAge), mostAge)
	}
	return mostAge
}

func (s shared) connect(ctx context.Context, purpose string) (*pgx.Conn, error) {
	config := s.config.ConnConfig.Copy()
	name(config, purpose)
	if s.config.BeforeConnect != nil {
		if err := s.config.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	opened, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if s.config.AfterConnect != nil {
		if err := s.config.AfterConnect(ctx, opened); err != nil {
			closeSoon(ctx, opened)
			return nil, err
		}
	}
	return opened, nil
}

// Room implements sqlstore.Pool.
func (s shared) Room() bool {
	is := s.pool.Stat()
	return is.IdleConns() > 0 || is.TotalConns() < is.MaxConns()
}

// Max implements sqlstore.Pool.
func (s shared) Max() (connections int, remedy string) {
	return int(s.config.MaxConns), "pool_max_conns, or MaxConns"
}

// conn is a connection of the pool, or one beside it.
type conn struct {
	*pgx.Conn

	end func()
}

func (c conn) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	return unsent(c.QueryRow(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(dest...))
}

func (c conn) Close() { c.end() }

// closeSoon closes a connection. The server is not waited for: the connection is done with either way.
func closeSoon(ctx context.Context, c *pgx.Conn) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.Close(closing)
}

// giveBack returns a function that closes the idle connections of a pool, if the pool has not been used
// since the call before. A program that waits needs none of them.
func giveBack(pool *pgxpool.Pool) func() {
	var used atomic.Int64
	used.Store(-1)
	return func() {
		is := pool.Stat()
		if used.Swap(is.AcquireCount()) != is.AcquireCount() {
			return
		}
		config := pool.Config()
		if config.MinConns > 0 || config.MinIdleConns > 0 { // it would open others
			return
		}
		for _, c := range pool.AcquireAllIdle(context.Background()) {
			go func() {
				closeSoon(context.Background(), c.Conn())
				c.Release()
			}()
		}
		used.Store(pool.Stat().AcquireCount())
	}
}
