package goredis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// TestQuarantineInACluster asks for one lock on each node before and after a change of one of them.
func TestQuarantineInACluster(t *testing.T) {
	t.Parallel()
	const longest = 2 * time.Second
	for change, do := range map[string]struct {
		replicas int
		change   func(c *redistest.Cluster, key string)
	}{
		"a master is restarted": {0, func(c *redistest.Cluster, key string) {
			m := c.Master(key)
			m.Kill()
			m.Restart()
		}},
		"a master comes back at another address": {0, (*redistest.Cluster).Replace},
		"a replica takes over":                   {1, func(c *redistest.Cluster, key string) { c.AwaitFailover(key, c.KillMaster(key)) }},
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, do.replicas)
			options := &client.ClusterOptions{Addrs: cluster.Addrs()}
			quarantine := goredis.Quarantine(options)
			c := client.NewClusterClient(options)
			t.Cleanup(func() { c.Close() })
			store := goredis.New(c, quarantine, redisstore.WithMaxTTL(longest))

			var keys []string
			for _, m := range cluster.Masters() {
				keys = append(keys, cluster.KeyOn(m, "key %d"))
			}
			for _, key := range keys {
				if r, err := store.SetNX(t.Context(), key, "before", longest); err != nil || !r.OK {
					t.Fatalf("SetNX before the change = %+v, %v", r, err)
				}
			}
			do.change(cluster, keys[0])

			var refused *redisstore.QuarantineError
			eventually(t, "quarantine", func() bool {
				r, err := store.SetNX(t.Context(), keys[0], "after", longest)
				if r.OK {
					t.Fatal("granted by a node that may have forgotten")
				}
				return errors.As(err, &refused)
			})
			for _, key := range keys[1:] {
				eventually(t, "a grant by another node", func() bool {
					r, err := store.SetNX(t.Context(), key, "after", longest)
					if errors.As(err, new(*redisstore.QuarantineError)) {
						t.Fatalf("SetNX on another node = %v", err)
					}
					return r.OK
				})
			}
			eventually(t, "a grant after quarantine", func() bool {
				r, _ := store.SetNX(t.Context(), keys[0], "after", longest)
				if r.OK && time.Now().Before(refused.Until) {
					t.Fatal("granted in quarantine")
				}
				return r.OK
			})
		})
	}
}

// TestQuarantineThroughSentinel: the replica that takes over may lack what its master granted.
func TestQuarantineThroughSentinel(t *testing.T) {
	t.Parallel()
	const longest = 2 * time.Second
	s := redistest.StartSentinel(t, 1)
	options := &client.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true}
	quarantine := goredis.Quarantine(options)
	c := client.NewFailoverClient(options)
	t.Cleanup(func() { c.Close() })
	store := goredis.New(c, quarantine, redisstore.WithMaxTTL(longest))
	if r, err := store.SetNX(t.Context(), "key", "before", longest); err != nil || !r.OK {
		t.Fatalf("SetNX before the failover = %+v, %v", r, err)
	}
	s.AwaitFailover(s.KillMaster())
	var refused *redisstore.QuarantineError
	eventually(t, "quarantine", func() bool {
		r, err := store.SetNX(t.Context(), "key", "after", longest)
		if r.OK {
			t.Fatal("granted by a server that may lack a lock")
		}
		return errors.As(err, &refused)
	})
	if refused.Address != redistest.MasterName {
		t.Errorf("the error names %q; want %q", refused.Address, redistest.MasterName)
	}
	eventually(t, "a grant after quarantine", func() bool {
		r, _ := store.SetNX(t.Context(), "key", "after", longest)
		if r.OK && time.Now().Before(refused.Until) {
			t.Fatal("granted in quarantine")
		}
		return r.OK
	})
}
