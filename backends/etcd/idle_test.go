package etcd_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/internal/verify/etcdtest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
)

// After ten seconds without a call, gRPC tests the connection beside the next one. It gives up a connection
// that is silent for a second, and the calls on it fail. The client library sends again only what reads.
func TestAnIdleConnectionThatWasForgottenFailsNoLock(t *testing.T) {
	t.Parallel()
	member := strings.TrimPrefix(etcdtest.Start(t, 1).Endpoints()[0], "http://")
	silent.Forgets(t, member, 11*time.Second, func(t *testing.T, addr string) backends.Store {
		store, client, err := etcd.Open(clientv3.Config{Endpoints: []string{"http://" + addr}}, etcd.WithMaxTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return store
	})
}
