package goredis_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// A variant is a way to lock that has a user of its own in the page.
type variant struct {
	opts     []redisstore.Option
	polls    bool
	passes   bool                // a release goes to the first of a queue
	keys     map[string][]string // and the patterns that cover it, of those that do not cover all
	strategy string              // "" is single
	refusals string              // whose table; "" is single
}

func (v variant) locks(c goredis.Client) (*locker.Client, <-chan struct{}) {
	s := goredis.New(c, append([]redisstore.Option{app, hour}, v.opts...)...)
	w := waits{single.New(s), make(chan struct{}, 100), new(atomic.Int64)}
	switch v.strategy {
	case "fair":
		w.Locker = fair.New(s)
	case "fenced":
		w.Locker = fenced.New(s)
	case "reentrant":
		w.Locker = reentrant.New(s)
	case "rwlock":
		w.Locker = rwlock.New(s).Writers()
	}
	return locker.New(w, locker.WithTTL(long)), w.begun
}

// variants are the users of the page that lock.
var variants = map[string]variant{
	"single":            {keys: oneKey, passes: true},
	"single-polling":    {keys: oneKey, opts: []redisstore.Option{redisstore.WithoutWakes()}, polls: true, refusals: "single-polling"},
	"single-quarantine": {keys: oneKey, passes: true},
	"single-cluster":    {keys: oneKey, passes: true},
	"single-any-key": {passes: true, keys: map[string][]string{
		"invoice/42": {"&{app:*}:wake", "~{app:*}:?queue"},
		"{a}b":       {"&app:*#wake"},
		"a}b":        {"&{[0-9]*}app:*:wake", "~{[0-9]*}app:*:?queue"},
	}},
	"single-replicas":   {keys: oneKey, opts: []redisstore.Option{redisstore.WithReplicas(1, acknowledging)}, refusals: "single-polling"},
	"single-no-scripts": {keys: oneKey, opts: []redisstore.Option{redisstore.WithoutScripts()}, refusals: "single-no-scripts"},
	"fair":              {keys: oneKey, passes: true, strategy: "fair", refusals: "fair"},
	"fenced":            {keys: oneKey, passes: true, strategy: "fenced", refusals: "fenced"},
	"reentrant":         {keys: oneKey, passes: true, strategy: "reentrant", refusals: "reentrant"},
	"rwlock":            {keys: oneKey, passes: true, strategy: "rwlock", refusals: "rwlock"},
}

var oneKey = map[string][]string{"invoice/42": nil}

// shared tells whether a lock is a sorted set of holds.
func (v variant) shared() bool { return v.strategy == "reentrant" || v.strategy == "rwlock" }

// covers tells whether a permission is about keys like shape.
func (v variant) covers(permission, shape string) bool {
	for _, patterns := range v.keys {
		if slices.Contains(patterns, permission) {
			return slices.Contains(v.keys[shape], permission)
		}
	}
	return true
}

// startFor runs a server for a variant, and returns it with what connects to it as the user.
func startFor(t *testing.T, user string) (s guarded, connect func(t *testing.T) goredis.Client) {
	switch user {
	case "single-cluster":
		s = guard(t, redistest.WithArgs("--cluster-enabled", "yes"))
		s.do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		eventually(t, "the cluster is up", func() bool {
			return strings.Contains(s.do("CLUSTER", "INFO").(string), "cluster_state:ok")
		})
		return s, func(t *testing.T) goredis.Client {
			c := client.NewClusterClient(&client.ClusterOptions{Addrs: []string{s.Addr()}, Username: user, Password: "secret"})
			t.Cleanup(func() { c.Close() })
			return c
		}
	case "single-replicas":
		master, _ := startReplicated(t, 1)
		s = guarded{master, t}
	case "single-quarantine":
		s = guard(t)
		return s, func(t *testing.T) goredis.Client {
			o := s.as(user)
			_ = goredis.Quarantine(o) // asks, whatever the store makes of it
			return dial(t, o)
		}
	}
	if s.Server == nil {
		s = guard(t)
	}
	return s, func(t *testing.T) goredis.Client { return dial(t, s.as(user)) }
}
