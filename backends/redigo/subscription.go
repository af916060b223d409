package redigo

import (
	"context"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// dialLimit bounds the opening of a connection for wake-ups, which has no ctx to do so.
const dialLimit = 5 * time.Second

func (e executor) Subscribe(ctx context.Context) driver.Subscription {
	return &subscription{ctx: ctx, exec: e}
}

// subscription has a connection of its own: one of the pool would take a place there, and to give it back the pool
// would read until the server has unsubscribed everything.
type subscription struct {
	ctx  context.Context
	exec executor
	conn client.Conn // nil before the first request
}

func (s *subscription) Subscribe(channel string) error   { return s.request("SUBSCRIBE", channel) }
func (s *subscription) Unsubscribe(channel string) error { return s.request("UNSUBSCRIBE", channel) }
func (s *subscription) Ping() error                      { return s.request("PING") }

func (s *subscription) request(name string, args ...any) error {
	if s.conn == nil {
		ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
		defer cancel()
		c, err := s.exec.connect(ctx, s.dial)
		if err != nil {
			return s.exec.notSent(ctx, err)
		}
		s.conn = c
	}
	if err := s.conn.Send(name, args...); err != nil {
		return s.exec.translate(s.ctx, err)
	}
	return s.exec.translate(s.ctx, s.conn.Flush())
}

func (s *subscription) dial(ctx context.Context) (client.Conn, error) {
	switch {
	case s.exec.pool.DialContext != nil:
		return s.exec.pool.DialContext(ctx)
	case s.exec.pool.Dial != nil:
		return s.exec.pool.Dial()
	}
	return nil, errNoDial
}

// Receive waits without a limit: it may take hours until a channel has something to say.
func (s *subscription) Receive() (driver.Event, error) {
	reply, err := client.ReceiveWithTimeout(s.conn, 0)
	if err != nil {
		return driver.Event{}, s.exec.translate(s.ctx, err)
	}
	push, _ := s.exec.decode(reply).([]any)
	if len(push) < 2 { // the answer to a PING before anything was subscribed
		return driver.Event{Kind: driver.EventPong}, nil
	}
	kind, _ := push[0].(string)
	channel, _ := push[1].(string)
	event := driver.Event{Kind: kinds[kind], Channel: channel}
	if event.Kind == driver.EventMessage && len(push) > 2 {
		event.Payload, _ = push[2].(string)
	}
	return event, nil
}

var kinds = map[string]driver.EventKind{
	"pong":        driver.EventPong,
	"subscribe":   driver.EventSubscribed,
	"unsubscribe": driver.EventUnsubscribed,
	"message":     driver.EventMessage,
}

func (s *subscription) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}
