package etcd_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
)

// After ten seconds without a call, gRPC tests the connection beside the next one. It gives up a connection
// that is silent for a second, and the calls on it fail. The client library sends again only what reads.
func TestAnIdleConnectionThatWasForgottenFailsNoLock(t *testing.T) {
	t.Parallel()
	member := strings.TrimPrefix(etcdtest.Start(t, 1).Endpoints()[0], "http://")
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		silent.Forgets(t, member, 11*time.Second, func(t *testing.T, addr string) backends.Store {
			return open(t, addr, clientv3.Config{}, etcd.WithMaxTTL(time.Hour))
		})
	})
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		pause := silent.Untested
		if full.Size() { // connections are forgotten again and again, and the store makes one in ten seconds
			pause = 11 * time.Second
		}
		silent.Forgets(t, member, pause, func(t *testing.T, addr string) backends.Store {
			return etcd.New(deaf(t, clientv3.Config{Endpoints: []string{"http://" + addr}}), etcd.WithMaxTTL(time.Hour))
		})
	})
}

// Each member has a connection of its own.
func TestIdleConnectionsToAllMembersThatWereForgottenFailNoLock(t *testing.T) {
	t.Parallel()
	var relays []*redistest.Proxy
	var endpoints []string
	for _, member := range etcdtest.Start(t, 3).Endpoints() {
		relay := redistest.NewRelay(t, strings.TrimPrefix(member, "http://"))
		relays, endpoints = append(relays, relay), append(endpoints, "http://"+relay.Addr())
	}
	store, client, err := etcd.Open(clientv3.Config{Endpoints: endpoints}, etcd.WithMaxTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	lock := map[string]func(key string) error{
		"SetNX": func(key string) error {
			_, err := store.SetNX(t.Context(), key, "token", time.Hour)
			return err
		},
		"Enter": func(key string) error {
			_, err := store.Enter(t.Context(), key, "token", time.Hour, backends.Admission{Limit: 2})
			return err
		},
	}
	for name, call := range lock {
		for i := range 3 * len(relays) { // so that each member has a connection
			eventually(t, "an answer", func() bool { return call(fmt.Sprint(name, i)) == nil })
		}
	}
	time.Sleep(11 * time.Second)
	for i, r := range relays {
		if r.Forsake() == 0 {
			t.Errorf("there was no connection to member %d", i)
		}
	}
	began := time.Now()
	var all sync.WaitGroup
	for name, call := range lock {
		all.Go(func() {
			if err := call(name); err != nil {
				t.Errorf("%s = %v", name, err)
			}
			t.Logf("%s after %v", name, time.Since(began).Round(time.Millisecond))
		})
	}
	all.Wait()
}

// gRPC reads that a connection has ended, with TLS too.
func TestAConnectionWithTLSThatTheServerHasClosedFailsNoLock(t *testing.T) {
	t.Parallel()
	relay := redistest.NewRelay(t, strings.TrimPrefix(etcdtest.Start(t, 1).Endpoints()[0], "http://"))
	addr, config := silent.WithTLS(t, relay.Addr(), "h2")
	store, client, err := etcd.Open(clientv3.Config{Endpoints: []string{"https://" + addr}, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	silent.Closes(t, store, func() {
		if relay.Open() == 0 {
			t.Error("there was no connection to close")
		}
		relay.CutAll()
	})
}
