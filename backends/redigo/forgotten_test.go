package redigo_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// The pool has no timeouts.
func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	silent.Run(t, server.Addr(), func(t *testing.T, addr string) locker.Locker {
		return single.New(redigo.New(dial(t, addr)))
	})
}
