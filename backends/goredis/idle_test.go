package goredis

import (
	"testing"

	client "github.com/redis/go-redis/v9"
)

type hooked struct {
	*client.Client
	hooks int
}

func (c *hooked) AddHook(h client.Hook) {
	c.hooks++
	c.Client.AddHook(h)
}

type hookedCluster struct {
	*client.ClusterClient
	hooks int
}

func (c *hookedCluster) OnNewNode(fn func(*client.Client)) {
	c.hooks++
	c.ClusterClient.OnNewNode(fn)
}

// Each hook would cost every dial and every transaction.
func TestAClientHasOneHookHoweverManyStoresAreMadeOnIt(t *testing.T) {
	one, other := &hooked{Client: Dial(t, new(client.Options))}, &hooked{Client: Dial(t, new(client.Options))}
	cluster := &hookedCluster{ClusterClient: client.NewClusterClient(&client.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})}
	t.Cleanup(func() { cluster.Close() })
	for range 3 {
		New(one)
		New(other)
		New(cluster)
	}
	if one.hooks != 1 || other.hooks != 1 || cluster.hooks != 1 {
		t.Errorf("%d, %d and %d hooks after three stores on each client, want 1", one.hooks, other.hooks, cluster.hooks)
	}
}
