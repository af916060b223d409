package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

type executor struct {
	pool *client.Pool
	addr string        // empty if the pool does not tell
	left *atomic.Int32 // connections being made that nobody waits for any more
	*driver.Heard
}

func newExecutor(pool *client.Pool, addr string) executor {
	return executor{pool, addr, new(atomic.Int32), new(driver.Heard)}
}

// Endpoint is the address of the server, if Open was told it.
func (e executor) Endpoint() string { return e.addr }

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
	err = e.elsewhere(ctx, func() error {
		reply, broke, err = e.sendOnce(ctx, args)
		return err
	})
	return reply, broke, err
}

func (e executor) sendOnce(ctx context.Context, args []any) (reply any, broke bool, err error) {
	c, err := e.get(ctx)
	if err != nil {
		return nil, false, err
	}
	defer e.put(c, &err)
	name, _ := args[0].(string)
	reply, err = e.exchangeOne(ctx, c, name, args[1:]...)
	return reply, err != nil && c.Err() != nil && !isTimeout(err), err
}

// put gives c back to the pool, or closes it if it is broken or the server is a replica: the name
// of the server may lead to another one by now.
func (e executor) put(c client.Conn, err *error) {
	if *err != nil && driver.IsDemoted(*err) {
		cut(c)
	}
	_ = c.Close()
}

// elsewhere repeats what was not done because the server is a replica. The other connections of the
// pool lead to the same server: they are used up until one leads to a master, or a new one is made.
func (e executor) elsewhere(ctx context.Context, do func() error) error {
	err := do()
	if err == nil || !driver.IsDemoted(err) {
		return err
	}
	for idle := e.pool.IdleCount() + 1; idle > 0 && driver.IsDemoted(err) && driver.Ended(ctx) == nil; idle-- {
		err = do()
	}
	return err
}

func isTimeout(err error) bool {
	timeout := net.Error(nil)
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Lane is the same for all: a pool has one server.
func (executor) Lane(context.Context, []any) any { return nil }

// DoAll sends again what a connection that broke has left unanswered, like Do.
func (e executor) DoAll(ctx context.Context, commands []*driver.Command) {
	if answered, broke := e.sendAll(ctx, commands); broke {
		e.sendAll(ctx, commands[answered:])
	}
}

func (e executor) OnceAll(ctx context.Context, commands []*driver.Command) {
	e.sendAll(ctx, commands)
}

// sendAll tells how many were answered, and whether the others were not because the connection
// broke. What a replica has not done is for its caller to send elsewhere.
func (e executor) sendAll(ctx context.Context, commands []*driver.Command) (answered int, broke bool) {
	c, err := e.get(ctx)
	if err == nil {
		var demoted error
		defer e.put(c, &demoted)
		if err = driver.Ended(ctx); err != nil {
			err = driver.NotSent(ctx, e.addr, err)
		} else {
			_, err = until(ctx, c, func() (_ any, err error) {
				answered, err = e.exchange(c, commands)
				return nil, err
			})
			broke = err != nil && !isTimeout(err)
		}
		for _, command := range commands[:answered] {
			if command.Err != nil && driver.IsDemoted(command.Err) {
				demoted, command.Alone = command.Err, true
			}
		}
	}
	for _, command := range commands[answered:] {
		command.Reply, command.Err = nil, e.translate(ctx, err)
	}
	return answered, broke
}

// exchange sends commands together and reads a reply for each. The error is the connection's.
func (e executor) exchange(c client.Conn, commands []*driver.Command) (answered int, err error) {
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
		command.Reply, command.Err = e.decode(reply), e.translate(context.Background(), err)
	}
	return len(commands), nil
}

// Pinned keeps a connection of the pool for fn. The pool would unwatch by itself, but heed no ctx.
func (e executor) Pinned(ctx context.Context, _ string, fn func(driver.Conn) error) error {
	return e.elsewhere(ctx, func() error { return e.pin(ctx, fn) })
}

func (e executor) pin(ctx context.Context, fn func(driver.Conn) error) (err error) {
	c, err := e.get(ctx)
	if err != nil {
		return err
	}
	defer e.put(c, &err)
	pinned := &conn{executor: e, Conn: c}
	err = fn(pinned)
	if pinned.watching && c.Err() == nil {
		_, _ = until(ctx, c, func() (any, error) { return c.Do("UNWATCH") }) // or the connection breaks
	}
	return err
}

type conn struct {
	executor
	client.Conn
	watching bool
}

func (c *conn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if err := driver.Ended(ctx); err != nil {
		return nil, driver.NotSent(ctx, c.addr, err)
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
		return c.Conn.Do("") // flushes, and returns all replies with the errors among them
	})
	replies, _ := c.decode(reply).([]any)
	return replies, c.translate(ctx, err)
}

// get needs no goroutine where an idle connection is taken as it is. If it is gone by then, there
// is still DialContext. If it fails, nothing was sent.
func (e executor) get(ctx context.Context) (c client.Conn, err error) {
	if e.pool.DialContext != nil && e.pool.TestOnBorrow == nil && e.pool.IdleCount() > 0 {
		c, err = e.pool.GetContext(ctx)
	} else {
		c, err = e.connect(ctx, e.pool.GetContext)
	}
	if err != nil {
		return nil, e.notSent(ctx, err)
	}
	return c, nil
}

// notSent is the error of a connection that could not be had.
func (e executor) notSent(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, client.ErrPoolExhausted):
		err = driver.Kind("pool_exhausted", true, err)
	case err.Error() == "redigo: get on closed pool": // it has no name
		err = driver.Closed(err)
	case isReply(err):
		err = e.translate(ctx, err)
	}
	if reply, ok := errors.AsType[*driver.ReplyError](err); ok {
		reply.Addr, reply.Connecting = e.addr, true
		return err
	}
	return driver.NotSent(ctx, e.addr, e.Explain(err))
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

// exchangeOne sends nothing if ctx is done already.
func (e executor) exchangeOne(ctx context.Context, c client.Conn, name string, args ...any) (any, error) {
	if err := driver.Ended(ctx); err != nil {
		return nil, driver.NotSent(ctx, e.addr, err)
	}
	reply, err := until(ctx, c, func() (any, error) { return c.Do(name, args...) })
	return e.decode(reply), e.translate(ctx, err)
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
func (e executor) decode(reply any) any {
	switch reply := reply.(type) {
	case []byte:
		return string(reply)
	case client.Error:
		return &driver.ReplyError{Addr: e.addr, Text: string(reply)}
	case []any:
		for i := range reply {
			reply[i] = e.decode(reply[i])
		}
	}
	return reply
}

// translate puts an error into the terms of the family.
func (e executor) translate(ctx context.Context, err error) error {
	e.Note(err)
	if err == nil {
		return nil
	}
	if reply := client.Error(""); errors.As(err, &reply) {
		err = &driver.ReplyError{Addr: e.addr, Text: string(reply)}
		e.Note(err)
		return err
	}
	if strings.HasSuffix(err.Error(), "(possible server error or unsupported concurrent read by application)") {
		err = driver.Kind("protocol", false, err)
	}
	return driver.Fault(ctx, e.addr, e.Explain(err))
}

func isReply(err error) bool {
	var reply client.Error
	return errors.As(err, &reply)
}
