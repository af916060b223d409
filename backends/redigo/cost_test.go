package redigo

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/silent"
)

func TestWhatASilentConnectionCostsItsNeighbours(t *testing.T) {
	silent.Campaign(t, func(t *testing.T, addr string) (shared, alone *redisstore.Store) {
		store, pool := Open(addr, nil, redisstore.WithoutQuarantine())
		t.Cleanup(func() { pool.Close() })
		pool.MaxIdle = silent.Goroutines
		return store, redisstore.New(struct{ driver.Executor }{newExecutor(pool, addr)})
	})
}
