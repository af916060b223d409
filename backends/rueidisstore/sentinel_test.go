package rueidisstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

func sentinelOptions(s *redistest.Sentinel) client.ClientOption {
	o := options(s.Addrs()...)
	o.Sentinel.MasterSet = redistest.MasterName
	return o
}

// TestContractThroughSentinel is brief: Sentinel tells the client which server to use, and the
// commands are the same.
func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	c := connect(t, sentinelOptions(redistest.StartSentinel(t, 1)))
	m := drivertest.Plain
	m.Brief = true
	m.Run(t, func(*testing.T) drivertest.Client { return rueidisstore.Driven(c) })
}

func TestAHeldLockOutlivesAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	connect := func() drivertest.Client { return rueidisstore.Driven(connect(t, sentinelOptions(s))) }
	drivertest.OutlivesFailover(t, "key", connect, func() { s.AwaitFailover(s.KillMaster()) })
}
