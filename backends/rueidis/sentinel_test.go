package rueidis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

func sentinelOptions(s *redistest.Sentinel) client.ClientOption {
	o := options(s.Addrs()...)
	o.Sentinel.MasterSet = redistest.MasterName
	return o
}

func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	rueidis.RunContracts(t, sentinelOptions(redistest.StartSentinel(t, 1)))
}

func TestAHeldLockOutlivesAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	connect := func() drivertest.Client { return rueidis.Driven(connect(t, sentinelOptions(s))) }
	drivertest.OutlivesFailover(t, "key", connect, func() { s.AwaitFailover(s.KillMaster()) })
}
