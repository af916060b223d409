package redigo

import (
	"context"
	"slices"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

var harness = drivertest.Harness{
	Connect: func(t testing.TB, to drivertest.Server) drivertest.Client {
		pool := Pool(t, to.Addr, optionsOf(to)...)
		pool.MaxActive, pool.Wait = to.Pool, to.Pool > 0
		var opts []redisstore.Option
		if to.Quarantine {
			opts = append(opts, Quarantine(pool, to.Addr))
		}
		return Driven(pool, opts...)
	},
	Open: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
		store, pool := Open(to.Addr, optionsOf(to), opts...)
		t.Cleanup(func() { pool.Close() })
		return store, func() { pool.Close() }
	},
	Embedded: func(t *testing.T) drivertest.Client {
		server := embedded.New()
		t.Cleanup(server.Close)
		return Driven(Pool(t, "127.0.0.1:1", client.DialContextFunc(server.Dial)))
	},
	Nil:     map[string]*redisstore.Store{"nil": New(nil)},
	Repeats: true,
}

func optionsOf(to drivertest.Server) []client.DialOption {
	o := []client.DialOption{client.DialUsername(to.User), client.DialPassword(to.Password), client.DialDatabase(to.Database)}
	if to.TLS != nil {
		o = append(o, client.DialUseTLS(true), client.DialTLSConfig(to.TLS))
	}
	if to.Timeout != 0 {
		o = append(o, client.DialReadTimeout(to.Timeout))
	}
	if to.Dial != nil {
		o = append(o, client.DialContextFunc(to.Dial))
	}
	return o
}

// Pool is as the documentation of redigo makes it: no timeouts, no tests.
func Pool(t testing.TB, addr string, opts ...client.DialOption) *client.Pool {
	pool := &client.Pool{MaxIdle: 100, DialContext: func(ctx context.Context) (client.Conn, error) {
		return client.DialContext(ctx, "tcp", addr, opts...)
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// Driven is pool as the suite uses it.
func Driven(pool *client.Pool, opts ...redisstore.Option) drivertest.Client {
	return drivertest.Client{
		Executor: newExecutor(pool, ""), Close: func() { pool.Close() },
		New: func(more ...redisstore.Option) *redisstore.Store { return New(pool, slices.Concat(opts, more)...) },
	}
}

func TestDriver(t *testing.T) { drivertest.Run(t, harness) }

func FuzzDecoding(f *testing.F) { drivertest.FuzzDecoding(f, harness) }

// TestContractOnRedis runs only the contracts of a Store for each change: the tests of single and of fair
// use the queue through redigo, and goredis has the other contracts.
func TestContractOnRedis(t *testing.T) {
	c := harness.Connect(t, drivertest.Server{Addr: redistest.Start(t).Addr()})
	for _, m := range []drivertest.Mode{drivertest.Plain, drivertest.Scriptless.Nightly(), drivertest.Prefixed.Nightly(), drivertest.Polling} {
		m.Brief = true
		m.Run(t, func(*testing.T) drivertest.Client { return c })
	}
}

// TestContractOnEmbedded is in fake time, where nothing may be left behind when a sentence ends.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	m := drivertest.Plain
	m.Bubble, m.Brief = true, true
	m.Run(t, harness.Embedded)
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, pool := Open(redistest.Start(t).Addr(), nil, redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
	t.Cleanup(func() { pool.Close() })
	drivertest.OnOpen(t, s, newExecutor(pool, ""))
}
