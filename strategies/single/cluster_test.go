package single_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestContractThroughClusterAndSentinel(t *testing.T) {
	beneath.ContractReplicated(t, "single")
}

// inCluster returns a Client with its own client library, which learns the slots by itself.
func inCluster(t *testing.T, cluster *redistest.Cluster, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	return locker.New(single.New(goredis.New(beneath.DialCluster(t, cluster), beneath.Long)), opts...)
}

func TestALockIsHeldWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	key := cluster.KeyOn(from, "invoice/%d")
	const ttl = 15 * time.Second // longer than a busy machine stands still
	l, err := inCluster(t, cluster, locker.WithTTL(ttl)).Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		l, err := inCluster(t, cluster).Lock(t.Context(), key)
		if err == nil {
			err = l.Unlock(t.Context())
		}
		next <- err
	}()
	renewed := func(when string) {
		t.Helper()
		before := l.Lease().Expires
		eventually(t, "the lock is renewed "+when, func() bool { return l.Lease().Expires.After(before) })
	}
	for _, moveKeys := range []bool{true, false} {
		move := cluster.BeginMove(key, to)
		if moveKeys {
			move.Keys()
		}
		renewed("while its slot moves")
		if _, err := inCluster(t, cluster).TryLock(t.Context(), key); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("TryLock of another = %v", err)
		}
		move.Finish()
		renewed("after its slot has moved")
		from, to = to, from
	}
	if err := context.Cause(l.Context()); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
	select {
	case err := <-next:
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(patience):
		t.Errorf("the waiter does not have the lock after %v", patience)
	}
}

func TestALockIsHeldThroughAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	key := cluster.KeyOn(cluster.Masters()[2], "invoice/%d")
	connect := func(opts ...locker.ClientOption) *locker.Client { return inCluster(t, cluster, opts...) }
	heldThroughFailover(t, connect, key, cluster.Servers()[5], func() { cluster.AwaitFailover(key, cluster.KillMaster(key)) })
}
