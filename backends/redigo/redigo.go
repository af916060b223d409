// Package redigo keeps locks in Redis through github.com/gomodule/redigo. What is sent and promised
// is the same for all client libraries: see package backends/redisstore. Below, client is redigo.
package redigo

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// New returns a store that uses pool, with the timeouts, the TLS and the credentials that its Dial
// or DialContext has. The caller closes the pool.
//
// A call returns as soon as its ctx is done, whatever the server does, and the connection that it
// used is closed if the reply has not come. Calls that are made at the same time may share a round
// trip, and then a connection: it is closed when all of their ctxs are done. Redigo by itself waits
// for ever unless it is given a DialReadTimeout, which is what bounds a call of the store whose ctx
// can't end; locker.Client uses none such. Connections of another make than redigo's need a
// ReceiveContext for this. A pool with DialContext and TestOnBorrowContext is faster than one with
// Dial or TestOnBorrow: those know no ctx, so each call needs a goroutine. It also needs one with IdleTimeout
// or MaxConnLifetime, by which the pool may connect. If a server hangs, 256 of those may go on after
// their calls; until one of them ends, further calls that need a connection fail at once.
//
// If all connections of the pool are in use (MaxActive), a new lock fails at once or, with Wait, a
// little before its ctx ends: nothing was sent. Renewals and releases have up to ten connections
// beside the pool, which are closed after a second without use. With redisstore.WithoutScripts they
// wait for the pool too.
//
// When nothing was answered for five seconds, the store tests the connection that it takes, and
// closes those that are idle if it is dead. While other calls are answered, a connection that died
// is found by the next command on it. An extension is then sent again. Other commands are not,
// since nobody can tell whether the first was carried out: the call fails, and the strategy cleans
// up. Set [TestOnBorrow], which tests each connection by its own age.
//
// Wake-ups have one connection more, outside of the pool, from the first waiter to the last. There
// is no quarantine for servers that may have forgotten locks, unless the pool went through
// [Quarantine].
//
// A pool does not tell where it leads. So give [WithAddress], unless you give Quarantine: otherwise errors
// can't name the server.
func New(pool *client.Pool, opts ...redisstore.Option) *redisstore.Store {
	if e := driver.RefuseNil(pool); e != nil {
		return redisstore.New(e, opts...)
	}
	return redisstore.New(newExecutor(pool, redisstore.Address(opts...)), opts...)
}

// WithAddress says where the server of a pool is (host:port), for the texts of errors.
func WithAddress(addr string) redisstore.Option { return redisstore.At(addr) }

// Open makes a pool of connections to addr (host:port) with options fit for locks, and returns a
// store on it together with the pool, for the caller to close. The options in dial come after these
// and win. Fields of the pool may be changed before it is first used; functions must end with their ctx.
//   - connecting, TLS, writing and reading may take a second each;
//   - up to 100 idle connections are kept for a minute, and tested before they are used again (see [TestOnBorrow]);
//   - a server that may have forgotten locks is in quarantine for a little more than the longest
//     TTL, which is 30 seconds by default (see [Quarantine], redisstore.WithMaxTTL and
//     redisstore.WithoutQuarantine).
func Open(addr string, dial []client.DialOption, opts ...redisstore.Option) (*redisstore.Store, *client.Pool) {
	if err := driver.CheckAddr(addr, ": use redigo.New (Lockstep) with a pool whose DialContext calls redis.DialURLContext (redigo)"); err != nil {
		return redisstore.New(driver.Refuse(err), opts...), &client.Pool{DialContext: func(context.Context) (client.Conn, error) { return nil, err }}
	}
	dial = append([]client.DialOption{
		client.DialConnectTimeout(time.Second),
		client.DialTLSHandshakeTimeout(time.Second),
		client.DialReadTimeout(time.Second),
		client.DialWriteTimeout(time.Second),
	}, dial...)
	p := pool{new(client.Pool), new(atomic.Int32), true}
	p.DialContext = func(ctx context.Context) (client.Conn, error) {
		return p.connect(ctx, func(ctx context.Context) (client.Conn, error) { return client.DialContext(ctx, "tcp", addr, dial...) })
	}
	p.TestOnBorrowContext, p.MaxIdle, p.IdleTimeout = TestOnBorrow(), 100, time.Minute
	if redisstore.Quarantines(opts...) {
		opts = append(slices.Clip(opts), Quarantine(p.Pool, addr))
	}
	return redisstore.New(driver.OverPool(p, addr), opts...), p.Pool
}

const (
	testAfter = 5 * time.Second // of idling, as in package driver
	testLimit = time.Second
)

// TestOnBorrow makes a TestOnBorrowContext for one pool of your own. It sends PING on a connection
// that has been idle for over five seconds, and gives it a second to answer. So a server that was
// away for longer than that, or that closes idle connections, leaves no connection on which a command
// fails. A connection that is in use often costs no PING. A refusal (NOPERM) counts as an answer.
func TestOnBorrow() func(ctx context.Context, c client.Conn, lastUsed time.Time) error {
	var failed atomic.Pointer[time.Time] // when a connection was last found dead
	return func(ctx context.Context, c client.Conn, lastUsed time.Time) error {
		if time.Since(lastUsed) < testAfter || ctx.Err() != nil { // in vain: the pool would go on to the next one
			return nil
		}
		if t := failed.Load(); t != nil && lastUsed.Before(*t) {
			return errIdle // or a second would pass for each
		}
		err := driver.Until(ctx, pool{}, c, func() error {
			_, err := client.DoWithTimeout(c, testLimit, "PING")
			return err
		})
		if errors.As(err, new(client.Error)) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			now := time.Now()
			failed.Store(&now)
		}
		return err
	}
}

var errIdle = errors.New("idle since before another connection was found dead")
