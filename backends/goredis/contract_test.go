package goredis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/internal/verify/race"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A mode is what a store is tested with.
type mode struct {
	name       string
	opts       []redisstore.Option
	prefix     string
	polling    bool
	scriptless bool
}

var modes = []mode{
	{name: "plain"},
	{name: "with prefix", opts: []redisstore.Option{redisstore.WithPrefix("app {1}:")}, prefix: "app {1}:"},
	{name: "without wakes", opts: []redisstore.Option{redisstore.WithPrefix("polling:"), redisstore.WithoutWakes()},
		prefix: "polling:", polling: true},
	{name: "without scripts", opts: []redisstore.Option{redisstore.WithPrefix("optimistic:"), redisstore.WithoutScripts()},
		prefix: "optimistic:", scriptless: true},
}

func TestContractOnRedis(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			c := dial(t, &client.Options{Addr: addr})
			runAll(t, contracts{prefix: m.prefix, polling: m.polling, scriptless: m.scriptless,
				connect: func(*testing.T) (*redisstore.Store, client.Cmdable) {
					return goredis.New(c, append(m.opts, hour)...), c
				}})
		})
	}
}

// TestContractOnEmbedded is in fake time, where the process never pauses in the middle of a command.
// A prefix and polling do not depend on the server, so they run on Redis only.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	for _, m := range modes {
		if m.polling || m.name == "with prefix" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			runAll(t, contracts{prefix: m.prefix, scriptless: m.scriptless, bubble: true,
				connect: func(t *testing.T) (*redisstore.Store, client.Cmdable) {
					c := embed(t)
					return goredis.New(c, m.opts...), c
				}})
		})
	}
}

// embed makes a client for the present bubble, with a server of its own.
func embed(t *testing.T) *client.Client {
	server := embedded.New()
	c := client.NewClient(&client.Options{
		Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
}

type contracts struct {
	connect    func(t *testing.T) (*redisstore.Store, client.Cmdable)
	prefix     string
	polling    bool
	scriptless bool
	replicated bool // by WithReplicas
	bubble     bool
}

// runAll runs all that a store can do.
func runAll(t *testing.T, c contracts) {
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
	if !c.polling && !c.replicated {
		t.Run("QueuedStore", func(t *testing.T) {
			backendtest.RunQueued(t, harness(c, func(s *redisstore.Store, o outside) (backends.QueuedStore, backendtest.Outside) { return s, o }))
		})
	}
	t.Run("NumberedStore", func(t *testing.T) {
		h := harness(c, func(s *redisstore.Store, o outside) (backends.NumberedStore, backendtest.Outside) { return s, o })
		h.NoQueue = c.polling || c.replicated
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
	maxTTL := time.Hour // as hour says
	if c.bubble {
		maxTTL = 0 // a store as it comes
	}
	return backendtest.HarnessFor[S, O]{
		Clock: true, Bubble: c.bubble, MaxTTL: maxTTL, NoWatch: c.polling, Beside: besides,
		New: func(t *testing.T) (S, O) {
			s, client := c.connect(t)
			return as(s, outside{t, client, c.prefix})
		},
	}
}

// besides lists the counter and the queue of key, except where their name is a number in the slot.
func besides(key string) []string {
	switch open := strings.Index(key, "{"); {
	case !strings.ContainsAny(key, "{}"):
		return []string{"{" + key + "}:\x00fence", "{" + key + "}:\x00queue"}
	case open >= 0 && strings.Index(key[open:], "}") > 1:
		return []string{key + "#\x00fence", key + "#\x00queue"}
	}
	return nil
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, c := goredis.Open(&client.Options{Addr: redistest.Start(t).Addr()}, redisstore.WithoutQuarantine(), hour)
	t.Cleanup(func() { c.Close() })
	backendtest.Run(t, backendtest.Harness{MaxTTL: time.Hour, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
		return s, outside{t, c, ""}
	}})
}

func startEmbedded(t *testing.T) string {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr()
}

func dial(t *testing.T, o *client.Options) *client.Client {
	c := client.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// outside works on the plain keys, below the store's prefix.
type outside struct {
	t      *testing.T
	client client.Cmdable
	prefix string
}

func (o outside) Get(key string) (string, time.Duration, bool) {
	ctx := context.Background() // sentences look once more after their own ctx has ended
	left, err := o.client.PTTL(ctx, o.prefix+key).Result()
	o.must(err)
	if left == -2 {
		return "", 0, false
	}
	value, err := o.client.Get(ctx, o.prefix+key).Result()
	switch {
	case errors.Is(err, client.Nil): // expired in between
		return "", 0, false
	case err != nil && client.HasErrorPrefix(err, "WRONGTYPE"):
		return "", max(left, 0), true
	}
	o.must(err)
	return value, max(left, 0), true
}

func (o outside) Set(key, value string, ttl time.Duration) {
	o.must(o.client.Set(context.Background(), o.prefix+key, value, ttl).Err())
}

func (o outside) SetOther(key string) {
	o.Delete(key)
	o.must(o.client.RPush(context.Background(), o.prefix+key, "element").Err())
}

func (o outside) SetNested(key string) {
	o.Delete(key)
	o.must(o.client.HSet(context.Background(), o.prefix+key, "hold:1", "1", "owner", "2").Err())
}

func (o outside) Delete(key string) {
	o.must(o.client.Del(context.Background(), o.prefix+key).Err())
}

func (o outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}
