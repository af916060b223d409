package drivertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
)

// OutlivesFailover acquires the lock of key so that a replica has it. The lock is used while failover
// kills its master and waits until the replica has taken over. Meanwhile nobody knows who holds it:
// an error must not look like a loss, nor as if another holder had it.
func OutlivesFailover(t *testing.T, key string, connect func() Client, failover func()) {
	ttl := 2 * patience
	hour := redisstore.WithMaxTTL(time.Hour)
	replicated := connect().New(redisstore.WithReplicas(1, 2*time.Second), hour)
	if r, err := replicated.SetNX(t.Context(), key, "token", ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	holder, others, waiter := connect().New(hour), connect().New(hour), connect().New()
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

// usage repeats calls until one that began after the failover was answered.
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
