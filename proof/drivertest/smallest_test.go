package drivertest

import (
	"context"
	"errors"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// smallest is the Pool of an adapter for redigo that has all that an adapter needs, and nothing that
// it may leave out: Open, quarantine, and a Dial that knows no ctx.
type smallest struct{ *client.Pool }

func (s smallest) Get(ctx context.Context) (driver.PoolConn, error) { return s.GetContext(ctx) }

func (s smallest) Dial(ctx context.Context) (driver.PoolConn, error) {
	c, err := s.DialContext(ctx)
	return unlimited{c}, err
}

type unlimited struct{ client.Conn }

func (p unlimited) Receive() (any, error) { return client.ReceiveWithTimeout(p.Conn, 0) }

// Cut makes a call whose deadline has passed. Redigo closes the connection then.
func (smallest) Cut(c driver.PoolConn) {
	ended, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, _ = client.ReceiveContext(c.(client.Conn), ended)
}

func (smallest) Translate(err error) error {
	if reply, ok := errors.AsType[client.Error](err); ok {
		return &driver.ReplyError{Text: string(reply)}
	}
	return err
}
