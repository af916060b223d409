package goredis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/redistest"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func TestContractOnRedis(t *testing.T) {
	runContract(t, redistest.Start(t).Addr())
}

// TestContractOnEmbedded is in fake time, where the process is never kept from running in the middle of a command.
func TestContractOnEmbedded(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Bubble: true, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
		server := embedded.New()
		c := client.NewClient(&client.Options{
			Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() {
			c.Close()
			server.Close()
		})
		return goredis.New(c), outside{t, c, ""}
	}})
}

func runContract(t *testing.T, addr string) {
	for name, opts := range map[string][]redis.Option{
		"plain":        nil,
		"with prefix":  {redis.WithPrefix("app {1}:"), redis.WithMaxTTL(2 * time.Minute)},
		"without wake": {redis.WithPrefix("polling:"), redis.WithoutWakes()},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &client.Options{Addr: addr})
			h := backendtest.Harness{NoWatch: name == "without wake"}
			prefix := map[string]string{"with prefix": "app {1}:", "without wake": "polling:"}[name]
			if name == "with prefix" {
				h.MaxTTL = 2 * time.Minute
			}
			h.New = func(t *testing.T) (backends.Store, backendtest.Outside) {
				return goredis.New(c, opts...), outside{t, c, prefix}
			}
			backendtest.Run(t, h)
		})
	}
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, c := goredis.Open(&client.Options{Addr: redistest.Start(t).Addr()}, redis.WithoutQuarantine())
	t.Cleanup(func() { c.Close() })
	backendtest.Run(t, backendtest.Harness{New: func(t *testing.T) (backends.Store, backendtest.Outside) {
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
	client *client.Client
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

func (o outside) Delete(key string) {
	o.must(o.client.Del(context.Background(), o.prefix+key).Err())
}

func (o outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}
