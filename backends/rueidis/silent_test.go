package rueidis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	silent.Run(t, redistest.Start(t).Addr(), func(t *testing.T, addr string) locker.Locker {
		return single.New(rueidis.New(dial(t, addr)))
	})
}
