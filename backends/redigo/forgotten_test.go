package redigo_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
)

// The pool has no timeouts.
func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	silent.Run(t, server.Addr(), func(t *testing.T, addr string) *redisstore.Store {
		return redigo.New(dial(t, addr), redigo.WithAddress(addr))
	}, (*redisstore.Store).Check)
}
