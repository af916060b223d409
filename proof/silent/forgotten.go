package silent

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const (
	idleLimit = time.Minute // for a pair, on a busy machine
	manyTimes = 20          // that connections end, in full size
)

// Untested is longer than a store lets a connection go untested.
const Untested = 6 * time.Second

// Forgets tests that the first locks after a pause succeed, when a load balancer or a NAT has forgotten all
// connections meanwhile. In full size one lock follows after each of twenty more pauses. The server is at addr.
func Forgets(t *testing.T, addr string, pause time.Duration, over func(t *testing.T, addr string) backends.Store) {
	trial.WhileBusy(t, ttl, func(take testing.TB, _ time.Duration) { // a release may be confirmed too late
		relay := redistest.NewRelay(t, addr)
		store := over(t, relay.Addr())
		t.Cleanup(relay.CutAll) // first: the end of a client may wait for what is silent
		forgets(take, relay, pause, store)
	})
}

func forgets(t testing.TB, relay *redistest.Proxy, pause time.Duration, store backends.Store) {
	locks := locker.New(single.New(store), locker.WithoutRenewal())
	lockOnce(t, locks, t.Name())
	lockOnce(t, locks, t.Name())
	forget := func() int {
		time.Sleep(pause)
		n := relay.Forsake()
		if n == 0 {
			t.Error("there was no connection to forget")
		}
		return n
	}
	n := forget()
	began := time.Now()
	var all sync.WaitGroup
	for i := range 2 * n {
		all.Go(func() { lockOnce(t, locks, fmt.Sprint(t.Name(), i)) })
	}
	all.Wait()
	t.Logf("%d connections were forgotten; %d locks at once took %v", n, 2*n, time.Since(began).Round(time.Millisecond))
	if !full.Size() {
		return
	}
	for range manyTimes {
		forget()
		lockOnce(t, locks, t.Name())
	}
}

func lockOnce(t testing.TB, locks *locker.Client, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), idleLimit)
	defer cancel()
	l, err := locks.TryLock(ctx, key)
	if err != nil {
		t.Errorf("TryLock = %v", err)
		return
	}
	if err := l.Unlock(ctx); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}
