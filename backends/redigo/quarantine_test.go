package redigo_test

import (
	"testing"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/quarantinetest"
)

func TestQuarantine(t *testing.T) {
	t.Parallel()
	quarantinetest.Run(t, quarantinetest.Adapter{
		Open: func(t *testing.T, addr, user, password string, opts ...redis.Option) *redis.Store {
			store, pool := redigo.Open(addr, []client.DialOption{client.DialUsername(user), client.DialPassword(password)}, opts...)
			t.Cleanup(func() { pool.Close() })
			return store
		},
		New: func(t *testing.T, addr string, opts ...redis.Option) *redis.Store {
			return redigo.New(dial(t, addr), opts...)
		},
	})
}
