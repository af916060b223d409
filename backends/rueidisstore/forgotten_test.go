package rueidisstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/rueidis"
)

// behindRelays is a client of a cluster with two masters, the relay before each, and a key on each.
func behindRelays(t testing.TB, set func(*client.ClientOption)) (c client.Client, relays []*redistest.Proxy, keys []string) {
	cluster := redistest.StartCluster(t, 2, 0)
	o := options()
	for _, s := range cluster.Masters() {
		relay := redistest.NewRelay(t, s.Addr())
		relays, keys = append(relays, relay), append(keys, cluster.KeyOn(s, "key-%d"))
		o.InitAddress = append(o.InitAddress, relay.Addr())
	}
	for i, s := range cluster.Servers() {
		_, port, _ := net.SplitHostPort(relays[i].Addr())
		if _, err := s.Do("CONFIG", "SET", "cluster-announce-port", port); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range cluster.Servers() {
		eventually(t, "each node tells the addresses of the relays", func() bool {
			nodes, err := s.Do("CLUSTER", "NODES")
			text, _ := nodes.(string)
			return err == nil && strings.Contains(text, relays[0].Addr()+"@") && strings.Contains(text, relays[1].Addr()+"@")
		})
	}
	set(&o)
	c = connect(t, o)
	t.Cleanup(func() { // first: the end of a client may wait for what is silent
		for _, r := range relays {
			r.CutAll()
		}
	})
	return c, relays, keys
}

// A connection that falls silent before a call that follows at once.
func TestAnErrorFromAClusterTellsTheNode(t *testing.T) {
	t.Parallel()
	c, relays, keys := behindRelays(t, func(o *client.ClientOption) { o.ConnWriteTimeout = time.Second })
	store := rueidisstore.New(c)
	for i, key := range keys {
		setNX(t, store, key)
		relays[i].Forsake()
		_, err := store.SetNX(t.Context(), key, "another", 20*time.Second)
		if err == nil || backends.Unsent(err) {
			t.Fatalf("SetNX on a silent connection: %v; want an unknown outcome", err)
		}
		for _, part := range []string{relays[i].Addr(), "i/o timeout", "; the outcome is unknown"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q has no %q", err, part)
			}
		}
	}
}

// Calls to one node go over a second connection while the first is silent, and rueidis does not find it.
func TestASilentConnectionToANodeOfAClusterLosesNoLock(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, 6*time.Second, func(take testing.TB, ttl time.Duration) {
		c, relays, keys := behindRelays(take, func(o *client.ClientOption) { o.ConnWriteTimeout = 10 * time.Minute })
		locks := locker.New(single.New(rueidisstore.New(c)), locker.WithTTL(ttl))
		held, err := locks.TryLock(take.Context(), keys[1])
		if err != nil {
			take.Fatal(err)
		}
		relays[1].Forsake()
		select {
		case <-held.Context().Done():
			take.Fatalf("the lock was lost: %v", context.Cause(held.Context()))
		case <-time.After(3 * ttl):
		}
		for _, key := range []string{keys[0], "{" + keys[1] + "}"} { // one on each node
			l, err := locks.TryLock(take.Context(), key)
			if err != nil {
				take.Fatalf("TryLock(%q) = %v", key, err)
			}
			if err := l.Unlock(take.Context()); err != nil {
				take.Fatalf("Unlock = %v", err)
			}
		}
		if err := held.Unlock(take.Context()); err != nil {
			take.Fatalf("Unlock = %v", err)
		}
	})
}

// Each node is tested, also if another one was in use all the time.
func TestTheFirstLockOnAForgottenConnectionToAClusterSucceeds(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, time.Second, forgetsNoLock)
}

// forgetsNoLock has a client that waits for an answer for as long as limit.
func forgetsNoLock(t testing.TB, limit time.Duration) {
	c, relays, keys := behindRelays(t, func(o *client.ClientOption) { o.ConnWriteTimeout = limit })
	locks := locker.New(single.New(rueidisstore.New(c)), locker.WithoutRenewal())
	try := func(key string) {
		t.Helper()
		l, err := locks.TryLock(t.Context(), key)
		if err != nil {
			t.Errorf("TryLock = %v", err)
			return
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
	try(keys[0])
	try(keys[1])
	for began := time.Now(); time.Since(began) < 8*time.Second; time.Sleep(100 * time.Millisecond) {
		try(keys[0])
	}
	relays[1].Forsake()
	try(keys[1])
	time.Sleep(8 * time.Second)
	relays[0].Forsake()
	relays[1].Forsake()
	try(keys[0])
	try(keys[1])
}
