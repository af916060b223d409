package rueidisstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, server.Addr(), func(t *testing.T, addr string) *redisstore.Store {
			return rueidisstore.New(dial(t, addr))
		}, (*redisstore.Store).Check)
	})
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, server.Addr(), func(t *testing.T, addr string) *redisstore.Store {
			store, c, err := rueidisstore.Open(rueidisstore.OptionsOf(drivertest.Server{Addr: addr}), redisstore.WithoutQuarantine())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return store
		}, (*redisstore.Store).Check)
	})
}
