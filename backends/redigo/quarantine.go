package redigo

import (
	"context"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// Quarantine adds to pool what a store needs to see its connections, and returns the option that gives it
// to the store. Call it before the pool is first used, once for each pool, when its DialContext or Dial is
// set. Addr names the server in errors:
//
//	quarantine := redigo.Quarantine(pool, addr)
//	store := redigo.New(pool, quarantine)
//
// [New] can't do this by itself: the connections that a pool has made already would not be seen, and
// a pool must not change while it is in use. Several stores on one pool share the option.
//
// On each new connection, INFO server and INFO replication are sent; without the permission for INFO
// nothing is noticed, and Check of the store has a finding. Connections to replicas are refused. See
// driver.Quarantine for what is noticed, and what is not.
func Quarantine(pool *client.Pool, addr string) redisstore.Option {
	if pool == nil {
		return redisstore.Invalid("pool is nil")
	}
	q := driver.NewQuarantine()
	dialContext, dialAlone := pool.DialContext, pool.Dial
	pool.DialContext = func(ctx context.Context) (client.Conn, error) {
		c, err := dial(ctx, dialContext, dialAlone)
		if err != nil {
			return nil, err
		}
		c = tracked{c, q.TrackCloser(addr, c.Close)}
		info, err := ask(ctx, c)
		if err := q.Saw(addr, info, err); err != nil {
			_ = c.Close() // err says what there is to say
			return nil, err
		}
		return c, nil
	}
	return redisstore.Observed(addr, q)
}

func ask(ctx context.Context, c client.Conn) (info string, err error) {
	err = driver.Until(ctx, pool{}, c, func() error {
		for _, section := range []string{"server", "replication"} {
			reply, err := client.String(c.Do("INFO", section))
			if err != nil {
				return pool{}.Translate(err)
			}
			info += reply
		}
		return nil
	})
	return info, err
}

// tracked is a connection of redigo's that may be closed by Quarantine.
type tracked struct {
	client.Conn
	end func() error
}

func (c tracked) Close() error { return c.end() }

func (c tracked) DoWithTimeout(timeout time.Duration, name string, args ...any) (any, error) {
	return client.DoWithTimeout(c.Conn, timeout, name, args...)
}

func (c tracked) ReceiveWithTimeout(timeout time.Duration) (any, error) {
	return client.ReceiveWithTimeout(c.Conn, timeout)
}

func (c tracked) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return client.DoContext(c.Conn, ctx, name, args...)
}

func (c tracked) ReceiveContext(ctx context.Context) (any, error) {
	return client.ReceiveContext(c.Conn, ctx)
}
