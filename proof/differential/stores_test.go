package differential

import (
	"context"
	"errors"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A subject is a store under test.
type subject struct {
	name  string
	rules rules
	fake  bool // runs in bubbles of testing/synctest
	// prepare is called once for a test. It returns a function that makes an empty store for each
	// run.
	prepare func(t *testing.T) func(t *testing.T) (store, outside)
}

// millisecond is the slack of Redis: a ttl is rounded up to whole ms, a key gets one ms more, as the key
// of holds does, and it lives through the ms in which it ends.
const millisecond = 3 * time.Millisecond

var subjects = []subject{
	{name: "memory", fake: true, prepare: inMemory},
	{name: "embedded", fake: true, rules: rules{slack: millisecond}, prepare: inProcess()},
	{name: "embedded without scripts", fake: true, rules: rules{slack: millisecond, scriptless: true}, prepare: inProcess(redisstore.WithoutScripts())},
	{name: "redis by go-redis", rules: rules{slack: millisecond}, prepare: byGoRedis()},
	{name: "redis by go-redis without scripts", rules: rules{slack: millisecond, scriptless: true}, prepare: byGoRedis(redisstore.WithoutScripts())},
	{name: "redis by redigo", rules: rules{slack: millisecond}, prepare: byRedigo()},
	{name: "redis by redigo without scripts", rules: rules{slack: millisecond, scriptless: true}, prepare: byRedigo(redisstore.WithoutScripts())},
}

func inMemory(*testing.T) func(t *testing.T) (store, outside) {
	return func(*testing.T) (store, outside) {
		s := memory.New(memory.WithMaxTTL(maxTTL))
		return s.Legacy(), s
	}
}

// maxTTL is the limit of all stores; some lives are longer than any test.
const maxTTL = time.Hour

var hour = redisstore.WithMaxTTL(maxTTL)

func inProcess(opts ...redisstore.Option) func(t *testing.T) func(t *testing.T) (store, outside) {
	opts = append(opts, hour)
	return func(*testing.T) func(t *testing.T) (store, outside) {
		return func(t *testing.T) (store, outside) {
			server := embedded.New()
			c := redis.NewClient(&redis.Options{
				Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() {
				c.Close()
				server.Close()
			})
			return goredis.New(c, opts...), beneath{t, c}
		}
	}
}

func byGoRedis(opts ...redisstore.Option) func(t *testing.T) func(t *testing.T) (store, outside) {
	return func(t *testing.T) func(t *testing.T) (store, outside) {
		c := dial(t, redistest.Start(t).Addr())
		s := goredis.New(c, append(opts, hour)...)
		return func(t *testing.T) (store, outside) { return s, emptied(t, c) }
	}
}

func byRedigo(opts ...redisstore.Option) func(t *testing.T) func(t *testing.T) (store, outside) {
	return func(t *testing.T) func(t *testing.T) (store, outside) {
		addr := redistest.Start(t).Addr()
		c := dial(t, addr)
		pool := &redigolib.Pool{MaxIdle: 100, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", addr)
		}}
		t.Cleanup(func() { pool.Close() })
		s := redigo.New(pool, append(opts, hour)...)
		return func(t *testing.T) (store, outside) { return s, emptied(t, c) }
	}
}

func dial(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { c.Close() })
	return c
}

func emptied(t *testing.T, c *redis.Client) outside {
	b := beneath{t, c}
	b.do("FLUSHALL")
	return b
}

// beneath is the outside of a Redis server. It uses plain commands.
type beneath struct {
	t *testing.T
	c *redis.Client
}

func (b beneath) Get(key string) (string, time.Duration, bool) {
	left, _ := b.do("PTTL", key).(int64)
	if left == -2 {
		return "", 0, false
	}
	value, err := b.c.Get(b.t.Context(), key).Result()
	switch {
	case errors.Is(err, redis.Nil): // it ended in between
		return "", 0, false
	case err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE"):
		b.t.Error(err)
	}
	return value, time.Duration(max(left, 0)) * time.Millisecond, true
}

func (b beneath) Set(key, value string, ttl time.Duration) {
	if ttl == 0 {
		b.do("SET", key, value)
		return
	}
	b.do("SET", key, value, "PX", (ttl + time.Millisecond - 1).Milliseconds())
}

func (b beneath) SetOther(key string) {
	b.do("DEL", key)
	b.do("RPUSH", key, "element")
}

func (b beneath) SetShared(key string) {
	b.do("DEL", key)
	b.do("ZADD", key, "1", "hold", "2", "other")
}

func (b beneath) Delete(key string) { b.do("DEL", key) }

func (b beneath) do(args ...any) any {
	b.t.Helper()
	reply, err := b.c.Do(b.t.Context(), args...).Result()
	if err != nil {
		b.t.Error(err)
	}
	return reply
}
