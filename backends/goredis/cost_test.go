package goredis

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/silent"
	client "github.com/redis/go-redis/v9"
)

func TestWhatASilentConnectionCostsItsNeighbours(t *testing.T) {
	silent.Campaign(t, func(t *testing.T, addr string) (shared, alone *redisstore.Store) {
		store, c := Open(&client.Options{Addr: addr, PoolSize: silent.Goroutines}, redisstore.WithoutQuarantine())
		t.Cleanup(func() { c.Close() })
		return store, redisstore.New(struct{ driver.Executor }{newExecutor(c)})
	})
}
