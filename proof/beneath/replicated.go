package beneath

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/redis/go-redis/v9"
)

// ContractReplicated runs the contract of a row of the table through Redis Cluster and through Sentinel.
// Sentinel tells the client which server to use, and the commands are the same. So for each change only
// single runs through it.
func ContractReplicated(t *testing.T, strategy string) {
	r := table.Named(strategy)
	for name, on := range map[string]func(t *testing.T) Start{"cluster": Cluster, "sentinel": Sentinel} {
		t.Run(name, func(t *testing.T) {
			if name == "sentinel" && strategy != "single" {
				full.Only(t)
			}
			t.Parallel()
			h := harness(r)
			h.New, h.MaxTTL = on(t).with(over(r)), MaxTTL
			lockertest.Run(t, h)
		})
	}
}

// Cluster starts a Redis Cluster of three masters for all stores.
func Cluster(t *testing.T) Start { return through(DialCluster(t, redistest.StartCluster(t, 3, 0))) }

// Sentinel starts a master with a replica and three sentinels for all stores.
func Sentinel(t *testing.T) Start { return through(DialSentinel(t, redistest.StartSentinel(t, 1))) }

func through(client redis.UniversalClient) Start {
	return func(t *testing.T) (Store, Outside) { return goredis.New(client, Long), keys{t, client} }
}

// DialCluster returns a new client, which finds out by itself where the slots are.
func DialCluster(t *testing.T, cluster *redistest.Cluster) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), PoolSize: 100})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// DialSentinel returns a new client, which the sentinels lead to the master.
func DialSentinel(t *testing.T, s *redistest.Sentinel) *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(), PoolSize: 100,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
