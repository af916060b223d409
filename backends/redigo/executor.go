package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redis"
)

type executor struct {
	pool *client.Pool
	left *atomic.Int32 // connections being made that nobody waits for any more
}

func newExecutor(pool *client.Pool) executor { return executor{pool, new(atomic.Int32)} }

// Do sends again what met a connection that broke: it may have been closed long ago.
func (e executor) Do(ctx context.Context, args ...any) (any, error) {
	reply, broke, err := e.send(ctx, args)
	if broke {
		reply, _, err = e.send(ctx, args)
	}
	return reply, err
}

func (e executor) Once(ctx context.Context, args ...any) (any, error) {
	reply, _, err := e.send(ctx, args)
	return reply, err
}

func (e executor) send(ctx context.Context, args []any) (reply any, broke bool, err error) {
	c, err := e.get(ctx)
	if err != nil {
		return nil, false, translate(ctx, err)
	}
	defer c.Close() //nolint:errcheck // to the pool, or if it is broken, for good
	name, _ := args[0].(string)
	reply, err = send(ctx, c, name, args[1:]...)
	return reply, err != nil && c.Err() != nil && !isTimeout(err), err
}

func isTimeout(err error) bool {
	timeout := net.Error(nil)
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Lane is the same for all: a pool has one server.
func (executor) Lane(context.Context, []any) any { return nil }

// DoAll sends again what a connection that broke has left unanswered, like Do.
func (e executor) DoAll(ctx context.Context, commands []*redis.Command) {
	if answered, broke := e.sendAll(ctx, commands); broke {
		e.sendAll(ctx, commands[answered:])
	}
}

func (e executor) OnceAll(ctx context.Context, commands []*redis.Command) { e.sendAll(ctx, commands) }

// sendAll tells how many were answered, and whether the others were not because the connection broke.
func (e executor) sendAll(ctx context.Context, commands []*redis.Command) (answered int, broke bool) {
	c, err := e.get(ctx)
	if err == nil {
		defer c.Close() //nolint:errcheck // as above
		if err = redis.Ended(ctx); err == nil {
			_, err = until(ctx, c, func() (_ any, err error) {
				answered, err = exchange(c, commands)
				return nil, err
			})
			broke = err != nil && !isTimeout(err)
		}
	}
	for _, command := range commands[answered:] {
		command.Reply, command.Err = nil, translate(ctx, err)
	}
	return answered, broke
}

// exchange sends commands together and reads a reply for each. The error is the connection's.
func exchange(c client.Conn, commands []*redis.Command) (answered int, err error) {
	for _, command := range commands {
		name, _ := command.Args[0].(string)
		if err := c.Send(name, command.Args[1:]...); err != nil {
			return 0, err
		}
	}
	if err := c.Flush(); err != nil {
		return 0, err
	}
	for i, command := range commands {
		reply, err := c.Receive()
		if err != nil && !isReply(err) {
			return i, err
		}
		command.Reply, command.Err = decode(reply), translate(context.Background(), err)
	}
	return len(commands), nil
}

// Pinned keeps a connection of the pool for fn. The pool would unwatch by itself, but heed no ctx.
func (e executor) Pinned(ctx context.Context, _ string, fn func(redis.Conn) error) error {
	c, err := e.get(ctx)
	if err != nil {
		return translate(ctx, err)
	}
	defer c.Close() //nolint:errcheck // as above
	pinned := &conn{Conn: c}
	err = fn(pinned)
	if pinned.watching && c.Err() == nil {
		_, _ = until(ctx, c, func() (any, error) { return c.Do("UNWATCH") }) // or the connection breaks
	}
	return err
}

type conn struct {
	client.Conn
	watching bool
}

func (c *conn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if err := redis.Ended(ctx); err != nil {
		return nil, err
	}
	reply, err := until(ctx, c.Conn, func() (any, error) {
		for _, args := range commands {
			name, _ := args[0].(string)
			switch name {
			case "WATCH":
				c.watching = true
			case "EXEC", "DISCARD", "UNWATCH":
				c.watching = false
			}
			if err := c.Send(name, args[1:]...); err != nil {
				return nil, err
			}
		}
		return c.Do("") // flushes, and returns all replies with the errors among them
	})
	replies, _ := decode(reply).([]any)
	return replies, translate(ctx, err)
}

// get needs no goroutine where an idle connection is taken as it is. If it is gone by then, there is still DialContext.
func (e executor) get(ctx context.Context) (client.Conn, error) {
	if e.pool.DialContext != nil && e.pool.TestOnBorrow == nil && e.pool.IdleCount() > 0 {
		return e.pool.GetContext(ctx)
	}
	return e.connect(ctx, e.pool.GetContext)
}

// connect returns when ctx is done. What connects may know nothing of it: a Dial, a TLS handshake, a TestOnBorrow. Those
// that go on alone are bounded, or a server that hangs would use up all files there are, and with them the way to others.
func (e executor) connect(ctx context.Context, get func(context.Context) (client.Conn, error)) (client.Conn, error) {
	if ctx.Done() == nil {
		return get(ctx)
	}
	if e.left.Load() >= maxLeft {
		return nil, errLeft
	}
	type result struct {
		c   client.Conn
		err error
	}
	results := make(chan result)
	go func() {
		c, err := get(ctx)
		select {
		case results <- result{c, err}:
		case <-ctx.Done():
			e.left.Add(-1)
			if err == nil {
				_ = c.Close() // nobody waits for it any more
			}
		}
	}()
	select {
	case r := <-results:
		return r.c, r.err
	case <-ctx.Done():
		e.left.Add(1) // results has no buffer: the goroutine takes it back
		return nil, ctx.Err()
	}
}

const maxLeft = 256

// errLeft is a dial that was not made: nothing was sent.
var errLeft = &net.OpError{
	Op: "dial", Net: "tcp", Err: fmt.Errorf("%d connections that were given up are still being made (see DialContext of a pool)", maxLeft),
}

// send sends nothing if ctx is done already.
func send(ctx context.Context, c client.Conn, name string, args ...any) (any, error) {
	if err := redis.Ended(ctx); err != nil {
		return nil, err
	}
	reply, err := until(ctx, c, func() (any, error) { return c.Do(name, args...) })
	return decode(reply), translate(ctx, err)
}

// until lets fn use c and cuts c off when ctx is done. When it returns, nothing more is sent. DoContext of redigo does the
// like, with a goroutine for each command that waits for the reply, which adds a quarter to a round trip on one machine.
func until(ctx context.Context, c client.Conn, fn func() (any, error)) (any, error) {
	if ctx.Done() == nil {
		return fn()
	}
	var cutting sync.WaitGroup
	cutting.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer cutting.Done()
		cut(c)
	})
	reply, err := fn()
	if !stop() {
		cutting.Wait()
		if err != nil && !isReply(err) {
			err = ctx.Err()
		}
	}
	return reply, err
}

// cut closes the connection below c, which Close of a connection in use would not: redigo does so when the deadline of
// a ReceiveContext has passed, before it reads anything.
func cut(c client.Conn) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, _ = client.ReceiveContext(c, ctx)
}

// decode puts a reply into the terms of the family, in place.
func decode(reply any) any {
	switch reply := reply.(type) {
	case []byte:
		return string(reply)
	case client.Error:
		return &redis.ReplyError{Text: string(reply)}
	case []any:
		for i := range reply {
			reply[i] = decode(reply[i])
		}
	}
	return reply
}

// translate puts an error into the terms of the family.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if reply := client.Error(""); errors.As(err, &reply) {
		return &redis.ReplyError{Text: string(reply)}
	}
	if end := redis.Ended(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w: %w", end, err)
	}
	return err
}

func isReply(err error) bool {
	var reply client.Error
	return errors.As(err, &reply)
}
