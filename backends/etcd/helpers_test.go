package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/proof/etcdtest"
)

const patience = 3 * time.Minute // for a busy machine

func dial(t testing.TB, endpoints []string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return dialAs(t, clientv3.Config{Endpoints: endpoints, DialOptions: opts})
}

func dialAs(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger, config.DialKeepAliveTime, config.DialKeepAliveTimeout = zap.NewNop(), time.Second, time.Second
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// one starts a cluster of one member.
func one(t testing.TB, flags ...string) (*etcdtest.Cluster, *clientv3.Client) {
	t.Helper()
	c := etcdtest.Start(t, 1, append(flags, etcdtest.Fast)...)
	return c, dial(t, c.Endpoints())
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// leader is the member that leads, other than one that may only believe that it leads.
func leader(t testing.TB, c *etcdtest.Cluster, client *clientv3.Client, other *etcdtest.Member) (found *etcdtest.Member) {
	t.Helper()
	eventually(t, "a member leads", func() bool {
		for _, m := range c.Members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			state, err := client.Status(ctx, m.URL())
			cancel()
			if err == nil && state.Leader == state.Header.MemberId && m != other {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// bell tells of wake-ups.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func (b bell) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-b:
	case <-time.After(patience):
		t.Fatalf("not woken within %v: %s", patience, what)
	}
}

func wantClass(t *testing.T, what string, err error, permanent, unsent bool) {
	t.Helper()
	var p interface{ Permanent() bool }
	var u interface{ Unsent() bool }
	isPermanent, isUnsent := errors.As(err, &p) && p.Permanent(), errors.As(err, &u) && u.Unsent()
	if err == nil || isPermanent != permanent || isUnsent != unsent {
		t.Errorf("%s: %v; permanent %v, not done %v; want %v and %v", what, err, isPermanent, isUnsent, permanent, unsent)
	}
}

// join adds a member. A cluster refuses it for some seconds after one of its members has restarted.
func join(t *testing.T, c *etcdtest.Cluster, add func(ctx context.Context, peers []string) error) *etcdtest.Member {
	t.Helper()
	return c.Join(func(peer string) error {
		eventually(t, "the cluster admits a member", func() bool { return add(t.Context(), []string{peer}) == nil })
		return nil
	})
}
