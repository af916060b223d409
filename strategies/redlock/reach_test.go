package redlock_test

import (
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// reach makes a store on a server, with its own client.
type reach func(tb testing.TB, server *redistest.Server) backends.FencedStore

// byDefault are clients with no option except the address.
var byDefault = map[string]reach{
	"go-redis": func(tb testing.TB, server *redistest.Server) backends.FencedStore {
		return goRedis(tb, &redis.Options{Addr: server.Addr()})
	},
	"redigo": func(tb testing.TB, server *redistest.Server) backends.FencedStore {
		return pooled(tb, &redigolib.Pool{Dial: func() (redigolib.Conn, error) { return redigolib.Dial("tcp", server.Addr()) }})
	},
}

// quick connects again as soon as a server is back. After PoolSize failed dials go-redis would not
// try for a second.
func quick(tb testing.TB, server *redistest.Server) backends.FencedStore {
	return goRedis(tb, quickly(server))
}

func quickly(server *redistest.Server) *redis.Options {
	return &redis.Options{
		Addr: server.Addr(), DialerRetries: 1, MaxRetries: -1, PoolSize: 10_000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // enabled, it takes megabytes for such a pool
	}
}

func goRedis(tb testing.TB, o *redis.Options) backends.FencedStore {
	logging.Disable() // go-redis logs every failed dial
	client := redis.NewClient(o)
	tb.Cleanup(func() { client.Close() })
	return goredis.New(client, beneath.Long)
}

func pooled(tb testing.TB, pool *redigolib.Pool) backends.FencedStore {
	tb.Cleanup(func() { pool.Close() })
	return redigo.New(pool, beneath.Long)
}

func (r reach) all(tb testing.TB, servers []*redistest.Server) []backends.FencedStore {
	stores := make([]backends.FencedStore, len(servers))
	for i, s := range servers {
		stores[i] = r(tb, s)
	}
	return stores
}

// quorum builds a quorum of all servers.
func (r reach) quorum(tb testing.TB, servers []*redistest.Server, build build, opts ...redlock.Option) locker.Locker {
	tb.Helper()
	return quorumOver(tb, r.all(tb, servers), build, opts...)
}

// quorumOver builds a quorum with enough time for a busy machine, unless opts say otherwise.
func quorumOver(tb testing.TB, stores []backends.FencedStore, build build, opts ...redlock.Option) locker.Locker {
	tb.Helper()
	l, err := build(stores, append([]redlock.Option{redlock.WithNodeLimit(time.Minute)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// way is how a server goes away and comes back.
type way struct{ begin, end func(*redistest.Server) }

var ways = map[string]way{
	"stopped": {(*redistest.Server).Pause, (*redistest.Server).Resume},
	"killed":  {(*redistest.Server).Kill, (*redistest.Server).Restart},
}

// await polls until holds returns true.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

const patience = 3 * time.Minute // for a busy machine

// locked counts the keys on servers that are locked; the tests call them "key 1" and so on.
func locked(t testing.TB, servers []*redistest.Server) (count int) {
	t.Helper()
	for _, s := range servers {
		found, err := s.Do("KEYS", "key*")
		if err != nil {
			t.Fatal(err)
		}
		count += len(found.([]any))
	}
	return count
}
