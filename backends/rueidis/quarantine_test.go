package rueidis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/quarantinetest"
)

func TestQuarantine(t *testing.T) {
	t.Parallel()
	quarantinetest.Run(t, quarantinetest.Adapter{
		Open: func(t *testing.T, addr, user, password string, opts ...redisstore.Option) *redisstore.Store {
			o := options(addr)
			o.Username, o.Password = user, password
			store, _ := open(t, o, opts...)
			return store
		},
		New: func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
			return rueidis.New(dial(t, addr), opts...)
		},
	})
}
