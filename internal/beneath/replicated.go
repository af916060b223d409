package beneath

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/redis/go-redis/v9"
)

// RunReplicated runs the contract of a Locker through Redis Cluster and through Sentinel.
func RunReplicated(t *testing.T, h lockertest.Harness, over Over) {
	for name, on := range map[string]func(t *testing.T) Start{"cluster": Cluster, "sentinel": Sentinel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.New = on(t).with(over)
			lockertest.Run(t, h)
		})
	}
}

// Cluster starts a Redis Cluster of three masters, which all stores are on.
func Cluster(t *testing.T) Start {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t, 3, 0).Addrs(), PoolSize: 100})
	t.Cleanup(func() { _ = client.Close() })
	return through(client)
}

// Sentinel starts a master with a replica and three sentinels, which lead all stores to the master.
func Sentinel(t *testing.T) Start {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: redistest.StartSentinel(t, 1).Addrs(), PoolSize: 100,
	})
	t.Cleanup(func() { _ = client.Close() })
	return through(client)
}

func through(client redis.UniversalClient) Start {
	return func(t *testing.T) (Store, Outside) { return goredis.New(client), keys{t, client} }
}
