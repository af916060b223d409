package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// smallest is the Executor of an adapter for redigo that has all that an adapter needs, and nothing
// that it may leave out: commands that share round trips, quarantine, and calls that end when their
// ctx is cancelled.
type smallest struct {
	pool *client.Pool
	addr string
}

func (e smallest) Do(ctx context.Context, args ...any) (reply any, err error) {
	err = e.on(ctx, func(c client.Conn) error {
		reply, err = client.DoWithTimeout(c, left(ctx), args[0].(string), args[1:]...)
		return err
	})
	return e.decode(reply), e.translate(ctx, err)
}

// Once is Do, which sends nothing twice.
func (e smallest) Once(ctx context.Context, args ...any) (any, error) { return e.Do(ctx, args...) }

// Pinned leaves it to the pool to unwatch.
func (e smallest) Pinned(ctx context.Context, _ string, fn func(driver.Conn) error) error {
	return e.on(ctx, func(c client.Conn) error { return fn(pinned{e, c}) })
}

// on calls fn with a connection. One that leads to a replica is not used again.
func (e smallest) on(ctx context.Context, fn func(client.Conn) error) error {
	if err := driver.Ended(ctx); err != nil {
		return driver.NotSent(ctx, e.addr, err)
	}
	c, err := e.pool.GetContext(ctx)
	if err != nil {
		return e.translate(ctx, driver.Connecting(err))
	}
	defer c.Close()
	err = fn(c)
	if reply := e.translate(ctx, err); err != nil && driver.IsDemoted(reply) {
		_, _ = client.DoWithTimeout(c, time.Nanosecond, "PING") // it fails, so the pool drops c
	}
	return err
}

// left is how long ctx lasts; 0: without end.
func left(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(time.Until(end), time.Millisecond)
	}
	return time.Second
}

func (e smallest) decode(reply any) any {
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

func (e smallest) translate(ctx context.Context, err error) error {
	if reply := client.Error(""); errors.As(err, &reply) {
		return &driver.ReplyError{Addr: e.addr, Text: string(reply)}
	}
	if err == nil || errors.As(err, new(*driver.ReplyError)) {
		return err
	}
	if wire := (*driver.WireError)(nil); errors.As(err, &wire) {
		return err
	}
	return driver.Fault(ctx, e.addr, err)
}

type pinned struct {
	smallest
	conn client.Conn
}

func (p pinned) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if err := driver.Ended(ctx); err != nil {
		return nil, driver.NotSent(ctx, p.addr, err)
	}
	var failed error
	for _, args := range commands {
		failed = errors.Join(failed, p.conn.Send(args[0].(string), args[1:]...))
	}
	if failed = errors.Join(failed, p.conn.Flush()); failed != nil {
		return nil, p.translate(ctx, failed)
	}
	replies := make([]any, len(commands))
	for i := range replies {
		reply, err := client.ReceiveWithTimeout(p.conn, left(ctx))
		if text := client.Error(""); errors.As(err, &text) {
			reply, err = text, nil
		}
		if err != nil {
			return replies, p.translate(ctx, err)
		}
		replies[i] = p.decode(reply)
	}
	return replies, nil
}

func (e smallest) Subscribe(ctx context.Context) driver.Subscription {
	return &subscription{smallest: e, ctx: ctx}
}

type subscription struct {
	smallest
	ctx  context.Context
	mu   sync.Mutex
	conn client.Conn // nil before the first request
}

func (s *subscription) Subscribe(channel string) error   { return s.ask("SUBSCRIBE", channel) }
func (s *subscription) Unsubscribe(channel string) error { return s.ask("UNSUBSCRIBE", channel) }
func (s *subscription) Ping() error                      { return s.ask("PING") }

func (s *subscription) ask(name string, args ...any) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		if s.conn, err = s.pool.DialContext(s.ctx); err != nil {
			s.conn = nil
			return s.translate(s.ctx, err)
		}
	}
	return s.translate(s.ctx, errors.Join(s.conn.Send(name, args...), s.conn.Flush()))
}

func (s *subscription) Receive() (driver.Event, error) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	reply, err := client.ReceiveWithTimeout(conn, 0)
	push, _ := s.decode(reply).([]any)
	if err != nil || len(push) < 2 { // the answer to a PING before anything was subscribed
		return driver.Event{Kind: driver.EventPong}, s.translate(s.ctx, err)
	}
	kind, _ := push[0].(string)
	event := driver.Event{Kind: map[string]driver.EventKind{
		"subscribe": driver.EventSubscribed, "unsubscribe": driver.EventUnsubscribed, "message": driver.EventMessage,
	}[kind]}
	event.Channel, _ = push[1].(string)
	if event.Kind == driver.EventMessage {
		event.Payload, _ = push[2].(string)
	}
	return event, nil
}

func (s *subscription) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}
