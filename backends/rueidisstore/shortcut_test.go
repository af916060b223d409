package rueidisstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/quarantinetest"
)

func TestAServerThatForgetsNothingGrantsAgainAtOnce(t *testing.T) {
	for name, end := range quarantinetest.Restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quarantinetest.CutShort(t, func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
				store, c, err := rueidisstore.Open(rueidisstore.OptionsOf(drivertest.Server{Addr: addr}), opts...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				return store
			}, end)
		})
	}
}
