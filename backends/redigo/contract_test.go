package redigo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/internal/verify/race"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// What each mode of a store is tested with.
var modes = map[string]contracts{
	"plain":           {},
	"with prefix":     {opts: []redisstore.Option{redisstore.WithPrefix("app {1}:")}, prefix: "app {1}:"},
	"without wakes":   {opts: []redisstore.Option{redisstore.WithPrefix("polling:"), redisstore.WithoutWakes()}, prefix: "polling:", polling: true},
	"without scripts": {opts: []redisstore.Option{redisstore.WithPrefix("optimistic:"), redisstore.WithoutScripts()}, prefix: "optimistic:", scriptless: true},
}

type contracts struct {
	opts       []redisstore.Option
	prefix     string
	polling    bool
	scriptless bool

	pool   func(t *testing.T) *client.Pool
	bubble bool
}

func TestContractOnRedis(t *testing.T) {
	pool := dial(t, redistest.Start(t).Addr())
	for name, c := range modes {
		c.pool = func(*testing.T) *client.Pool { return pool }
		t.Run(name, c.run)
	}
}

// TestContractOnEmbedded is in fake time, where nothing may be left behind when a sentence ends.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	contracts{pool: embed, bubble: true}.run(t)
}

// run runs all that a store can do.
func (c contracts) run(t *testing.T) {
	t.Run("Store", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o outside) (backends.Store, backendtest.Outside) { return s, o }))
	})
	t.Run("started", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o outside) (backends.Store, backendtest.Outside) {
			return starting.Awaited(s), o
		}))
	})
	t.Run("LegacyStore", func(t *testing.T) {
		backendtest.RunLegacy(t, harness(c, func(s *redisstore.Store, o outside) (backends.LegacyStore, backendtest.Outside) { return s, o }))
	})
	if c.scriptless {
		return
	}
	if !c.polling {
		t.Run("QueuedStore", func(t *testing.T) {
			backendtest.RunQueued(t, harness(c, func(s *redisstore.Store, o outside) (backends.QueuedStore, backendtest.Outside) { return s, o }))
		})
	}
	t.Run("NumberedStore", func(t *testing.T) {
		h := harness(c, func(s *redisstore.Store, o outside) (backends.NumberedStore, backendtest.Outside) { return s, o })
		h.NoQueue = c.polling
		backendtest.RunNumbered(t, h)
	})
	t.Run("FencedStore", func(t *testing.T) {
		backendtest.RunFenced(t, harness(c, func(s *redisstore.Store, o outside) (backends.FencedStore, backendtest.Outside) { return s, o }))
	})
	t.Run("NestedStore", func(t *testing.T) {
		backendtest.RunNested(t, harness(c, func(s *redisstore.Store, o outside) (backends.NestedStore, backendtest.NestedOutside) { return s, o }))
	})
}

func harness[S, O any](c contracts, as func(*redisstore.Store, outside) (S, O)) backendtest.HarnessFor[S, O] {
	opts, maxTTL := c.opts, time.Duration(0) // a store as it comes
	if !c.bubble {                           // no machine is too slow for an hour
		opts, maxTTL = append(opts, redisstore.WithMaxTTL(time.Hour)), time.Hour
	}
	return backendtest.HarnessFor[S, O]{
		Clock: true, Bubble: c.bubble, MaxTTL: maxTTL, NoWatch: c.polling,
		New: func(t *testing.T) (S, O) {
			pool := c.pool(t)
			return as(redigo.New(pool, opts...), outside{t, pool, c.prefix})
		},
	}
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, pool := redigo.Open(redistest.Start(t).Addr(), nil, redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
	t.Cleanup(func() { pool.Close() })
	backendtest.Run(t, backendtest.Harness{MaxTTL: time.Hour, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
		return s, outside{t, pool, ""}
	}})
}

// dial makes a pool as its documentation does: no timeouts, no tests.
func dial(t testing.TB, addr string, opts ...client.DialOption) *client.Pool {
	pool := &client.Pool{MaxIdle: 100, DialContext: func(ctx context.Context) (client.Conn, error) {
		return client.DialContext(ctx, "tcp", addr, opts...)
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// embed makes a pool for the present bubble, with a server of its own.
func embed(t *testing.T) *client.Pool {
	server := embedded.New()
	t.Cleanup(server.Close)
	return dial(t, "127.0.0.1:1", client.DialContextFunc(server.Dial))
}

// outside works on the plain keys, below the store's prefix.
type outside struct {
	t      *testing.T
	pool   *client.Pool
	prefix string
}

func (o outside) Get(key string) (string, time.Duration, bool) {
	left, err := client.Int64(o.do("PTTL", o.prefix+key))
	o.must(err)
	if left == -2 {
		return "", 0, false
	}
	value, err := client.String(o.do("GET", o.prefix+key))
	ttl := max(time.Duration(left)*time.Millisecond, 0)
	switch {
	case errors.Is(err, client.ErrNil): // expired in between
		return "", 0, false
	case err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"):
		return "", ttl, true
	}
	o.must(err)
	return value, ttl, true
}

func (o outside) Set(key, value string, ttl time.Duration) {
	args := []any{o.prefix + key, value}
	if ttl > 0 {
		args = append(args, "PX", ttl.Milliseconds())
	}
	_, err := o.do("SET", args...)
	o.must(err)
}

func (o outside) SetOther(key string) {
	o.Delete(key)
	_, err := o.do("RPUSH", o.prefix+key, "element")
	o.must(err)
}

func (o outside) SetNested(key string) {
	o.Delete(key)
	_, err := o.do("HSET", o.prefix+key, "hold:1", "1", "owner", "2")
	o.must(err)
}

func (o outside) Delete(key string) {
	_, err := o.do("DEL", o.prefix+key)
	o.must(err)
}

func (o outside) do(name string, args ...any) (any, error) {
	c := o.pool.Get()
	defer c.Close()
	return c.Do(name, args...)
}

func (o outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}
