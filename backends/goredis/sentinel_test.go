package goredis_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	runModes(t, dialSentinel(t, redistest.StartSentinel(t, 1)))
}

func dialSentinel(t *testing.T, s *redistest.Sentinel) *client.Client {
	t.Helper()
	c := client.NewFailoverClient(&client.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAHeldLockOutlivesAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	connect := func() client.UniversalClient { return dialSentinel(t, s) }
	outlivesFailover(t, "key", connect, func() { s.AwaitFailover(s.KillMaster()) })
}

// outlivesFailover takes the lock key so that the replica knows of it. The lock is used while failover kills its master and
// waits until the replica has taken over: meanwhile nobody knows whose it is, and who says so must not be mistaken for
// a loss or for a refusal.
func outlivesFailover(t *testing.T, key string, connect func() client.UniversalClient, failover func()) {
	const ttl = 2 * patience
	replicated := goredis.New(connect(), redisstore.WithReplicas(1, 2*time.Second), hour)
	if r, err := replicated.SetNX(t.Context(), key, "token", ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	holder, others, waiter := goredis.New(connect(), hour), goredis.New(connect(), hour), goredis.New(connect())
	var woken atomic.Int64
	if err := waiter.Watch(t.Context(), key, func() { woken.Add(1) }); err != nil {
		t.Fatal(err)
	}

	use := usage{t: t, over: make(chan struct{})}
	use.run("an extension", func(int) (bool, error) { return holder.ExpireIf(t.Context(), key, "token", ttl) })
	use.run("an attempt of another", func(i int) (bool, error) {
		r, err := others.SetNX(t.Context(), key, fmt.Sprint("other", i), ttl)
		return !r.OK, err
	})
	use.run("an attempt at a free lock", func(i int) (bool, error) {
		r, err := others.SetNX(t.Context(), fmt.Sprint(key, "/free/", i), "token", ttl)
		return r.OK, err
	})
	failover()
	close(use.over)
	use.running.Wait()

	if ok, err := holder.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	eventually(t, "the waiter hears of releases on the new master", func() bool {
		before := woken.Load()
		if _, err := holder.SetNX(t.Context(), key, "next", ttl); err != nil {
			t.Fatal(err)
		}
		if _, err := holder.DeleteIf(t.Context(), key, "next"); err != nil {
			t.Fatal(err)
		}
		return woken.Load() > before
	})
}

// usage is of those who repeat their calls until one that began after the failover was answered.
type usage struct {
	t       *testing.T
	running sync.WaitGroup
	over    chan struct{}
}

func (u *usage) run(what string, call func(i int) (right bool, err error)) {
	u.running.Go(func() {
		var after time.Time
		for i := 0; ; i++ {
			select {
			case <-u.over:
				if after.IsZero() {
					after = time.Now()
				}
			case <-time.After(5 * time.Millisecond):
			}
			right, err := call(i)
			switch {
			case err == nil && !right:
				u.t.Errorf("%s was answered wrongly", what)
				return
			case after.IsZero():
			case err == nil:
				return
			case time.Since(after) > patience:
				u.t.Errorf("%s was not answered within %v of the failover: %v", what, patience, err)
				return
			}
		}
	})
}
