package goredis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	runModes(t, dialSentinel(t, redistest.StartSentinel(t, 1)))
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
