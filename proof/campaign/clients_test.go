package campaign

import (
	"testing"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/beneath"
	goredisclient "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A library is one way to reach a server: a client library with its default options, or through
// Open, which sets options for locks. Quarantine is off, since the servers here have just started.
type library struct {
	name string
	dial func(t *testing.T, addr string, opts ...redisstore.Option) connection
}

// A connection is a store on one server, with a function that closes its client.
type connection struct {
	store *redisstore.Store
	close func()
}

var libraries = []library{
	{"go-redis", func(t *testing.T, addr string, opts ...redisstore.Option) connection {
		c := goredisclient.NewClient(&goredisclient.Options{Addr: addr})
		return closing(t, goredis.New(c, forTests(opts)...), c.Close)
	}},
	{"go-redis by Open", func(t *testing.T, addr string, opts ...redisstore.Option) connection {
		store, c := goredis.Open(&goredisclient.Options{Addr: addr}, forTests(opts)...)
		return closing(t, store, c.Close)
	}},
	// it waits for a reply for ever
	{"redigo", func(t *testing.T, addr string, opts ...redisstore.Option) connection {
		pool := &client.Pool{Dial: func() (client.Conn, error) { return client.Dial("tcp", addr) }, MaxIdle: 3}
		return closing(t, redigo.New(pool, forTests(opts)...), pool.Close)
	}},
	{"redigo by Open", func(t *testing.T, addr string, opts ...redisstore.Option) connection {
		store, pool := redigo.Open(addr, nil, forTests(opts)...)
		return closing(t, store, pool.Close)
	}},
}

func forTests(opts []redisstore.Option) []redisstore.Option {
	return append([]redisstore.Option{redisstore.WithoutQuarantine(), beneath.Long}, opts...)
}

// closing makes a connection that is closed at the end of the test, or before.
func closing(t *testing.T, store *redisstore.Store, end func() error) connection {
	closed := false
	c := connection{store, func() {
		if !closed {
			closed = true
			_ = end() // a Close that fails loses nothing
		}
	}}
	t.Cleanup(c.close)
	return c
}

func init() { logging.Disable() } // go-redis logs every dial that fails
