package goredis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/quarantinetest"
	client "github.com/redis/go-redis/v9"
)

func TestQuarantine(t *testing.T) {
	t.Parallel()
	quarantinetest.Run(t, quarantinetest.Adapter{
		Open: func(t *testing.T, addr, user, password string, opts ...redis.Option) *redis.Store {
			store, c := goredis.Open(&client.Options{Addr: addr, Username: user, Password: password}, opts...)
			t.Cleanup(func() { c.Close() })
			return store
		},
		New: func(t *testing.T, addr string, opts ...redis.Option) *redis.Store {
			return goredis.New(dial(t, &client.Options{Addr: addr}), opts...)
		},
	})
}
