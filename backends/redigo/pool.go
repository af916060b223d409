package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

func newExecutor(p *client.Pool, addr string) driver.Pipeliner {
	return driver.OverPool(pool{p, new(atomic.Int32), false}, addr)
}

type pool struct {
	*client.Pool
	left  *atomic.Int32 // connections being made that nobody waits for any more
	heeds bool          // all functions of the pool end with their ctx
}

// Get passes over connections that Quarantine has closed while they were idle: the pool does not look.
func (p pool) Get(ctx context.Context) (driver.PoolConn, error) {
	for idle := p.IdleCount(); ; idle-- {
		c, err := p.borrow(ctx)
		if err != nil || c.Err() == nil || idle <= 0 {
			return c, err
		}
		_ = c.Close() // which takes it out of the pool
	}
}

// borrow needs no goroutine where an idle connection is taken as it is. A pool with an age for them may close
// what is idle, and connect. If it is gone by then, there is still DialContext.
func (p pool) borrow(ctx context.Context) (client.Conn, error) {
	asItIs := p.heeds || p.DialContext != nil && p.IdleTimeout <= 0 && p.MaxConnLifetime <= 0
	if asItIs && p.TestOnBorrow == nil && p.IdleCount() > 0 {
		return p.GetContext(ctx)
	}
	return p.connect(ctx, p.GetContext)
}

// Tests tells whether the pool tests connections that were idle.
func (p pool) Tests() bool { return p.TestOnBorrow != nil || p.TestOnBorrowContext != nil }

func (p pool) Dial(ctx context.Context) (driver.PoolConn, error) {
	c, err := p.open(ctx)
	return patient{c}, err
}

func (p pool) open(ctx context.Context) (client.Conn, error) {
	return p.connect(ctx, func(ctx context.Context) (client.Conn, error) { return dial(ctx, p.DialContext, p.Pool.Dial) })
}

// Room implements driver.Bounded.
func (p pool) Room() driver.Room {
	if p.MaxActive <= 0 {
		return driver.Room{}
	}
	stats := p.Stats()
	return driver.Room{InUse: stats.ActiveCount - stats.IdleCount, Most: p.MaxActive, Remedy: "MaxActive"}
}

// Beside implements driver.Bounded.
func (p pool) Beside(ctx context.Context) (driver.PoolConn, error) { return p.open(ctx) }

// patient is a connection for wake-ups: it may take hours until a channel has a message.
type patient struct{ client.Conn }

func (p patient) Receive() (any, error) { return client.ReceiveWithTimeout(p.Conn, 0) }

// Cut closes the connection below c, which Close of a connection of the pool would not: redigo does
// so when the deadline of a ReceiveContext has passed, before it reads anything.
func (pool) Cut(c driver.PoolConn) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, _ = client.ReceiveContext(c.(client.Conn), ctx)
}

func (pool) Translate(err error) error {
	reply, refused := errors.AsType[client.Error](err)
	switch text := err.Error(); {
	case refused:
		return &driver.ReplyError{Text: string(reply)}
	case errors.Is(err, client.ErrPoolExhausted):
		return driver.Kind("pool_exhausted", true, err)
	case text == "redigo: get on closed pool": // it has no name
		return driver.Closed(err)
	case strings.HasSuffix(text, "(possible server error or unsupported concurrent read by application)"):
		return driver.Kind("protocol", false, err)
	}
	return err
}

// dial opens a connection by the functions of a pool.
func dial(ctx context.Context, dialContext func(context.Context) (client.Conn, error), dial func() (client.Conn, error)) (client.Conn, error) {
	switch {
	case dialContext != nil:
		return dialContext(ctx)
	case dial != nil:
		return dial()
	}
	return nil, errors.New("the pool has neither Dial nor DialContext")
}

// connect returns when ctx is done. What connects may know nothing of it: a Dial, a TLS handshake,
// a TestOnBorrow.
func (p pool) connect(ctx context.Context, get func(context.Context) (client.Conn, error)) (client.Conn, error) {
	c, err := driver.Await(ctx, p.left, func() (client.Conn, error) { return get(ctx) }, func(c client.Conn) { _ = c.Close() })
	if errors.Is(err, driver.ErrLeft) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%w (see DialContext of a pool)", err)}
	}
	return c, err
}
