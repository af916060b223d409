package rueidisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

// That the users of docs/security.md suffice for rueidis as well. What each permission is for,
// package goredis finds out: the commands are the same.

func command(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// as makes the options of user.
func as(user string, addrs ...string) client.ClientOption {
	o := options(addrs...)
	o.Username, o.Password = user, "secret"
	o.ClientSetInfo = client.DisableClientSetInfo
	o.ForceSingleClient = true
	return o
}

var app = redisstore.WithPrefix("app:")

func TestWhatRueidisSendsToOpenAConnection(t *testing.T) {
	server := redistest.Start(t)
	command(t, server, append([]string{"ACL", "SETUSER", "single"}, drivertest.Users(t)["single"]...)...)
	proxy := redistest.NewProxy(t, server.Addr())
	o := as("single", proxy.Addr())
	o.ClientSetInfo = nil
	store, _ := open(t, o, redisstore.WithoutQuarantine(), app)
	setNX(t, store, "a")
	if seen := proxy.Seen(); len(seen) < 2 || seen[0] != "HELLO" || seen[1] != "SET" {
		t.Errorf("sent %v", seen)
	}
	for permission, set := range map[string]func(o *client.ClientOption){
		"+select":          func(o *client.ClientOption) { o.SelectDB = 1 },
		"+client|tracking": func(o *client.ClientOption) { o.DisableCache = false },
	} {
		for _, rules := range [][]string{drivertest.Users(t)["single"], append(slices.Clone(drivertest.Users(t)["single"]), permission)} {
			command(t, server, append([]string{"ACL", "SETUSER", "single"}, rules...)...)
			o := as("single", server.Addr())
			set(&o)
			c, err := client.NewClient(o)
			c.Close()
			if refused := err != nil; refused == slices.Contains(rules, permission) {
				t.Errorf("%s: %v", permission, err)
			}
		}
	}
}

// TestRueidisAsksNewerClustersForShards: if the server refuses, rueidis takes it for one that is in
// no cluster.
func TestRueidisAsksNewerClustersForShards(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	server, other := cluster.Servers()[0], cluster.Servers()[1]
	newer := server.Major() >= 8
	key := cluster.KeyOn(other, "app:%d")
	lock := func(rules ...string) error {
		for _, s := range cluster.Servers() {
			command(t, s, slices.Concat([]string{"ACL", "SETUSER", "single-cluster"}, drivertest.Users(t)["single-cluster"], rules)...)
		}
		o := as("single-cluster", server.Addr())
		o.ForceSingleClient = false
		store := rueidisstore.New(connect(t, o))
		_, err := store.SetNX(t.Context(), key, "token", 20*time.Second)
		return err
	}
	if err := lock(); (err != nil) != newer {
		t.Errorf("SetNX = %v, on a server that is newer than 7: %v", err, newer)
	}
	if err := lock("+cluster|shards"); err != nil {
		t.Errorf("SetNX with +cluster|shards = %v", err)
	}
}
