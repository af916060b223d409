package goredis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// TestContractThroughSentinel is brief: Sentinel tells the client which server to use, and the
// commands are the same.
func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	c := dialSentinel(t, redistest.StartSentinel(t, 1))
	m := drivertest.Plain
	m.Brief = true
	m.Run(t, func(*testing.T) drivertest.Client { return goredis.Driven(c) })
}

func dialSentinel(t *testing.T, s *redistest.Sentinel) *client.Client {
	t.Helper()
	c := client.NewFailoverClient(&client.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAHeldLockOutlivesAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	connect := func() drivertest.Client { return goredis.Driven(dialSentinel(t, s)) }
	drivertest.OutlivesFailover(t, "key", connect, func() { s.AwaitFailover(s.KillMaster()) })
}
