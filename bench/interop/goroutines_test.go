package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// crew are goroutines of Lockstep, on some Clients with WithSharedKeys, and goroutines of redsync with
// its default delays. All of them want one key. Each works for 5 ms, and then does something else.
type crew struct {
	clients, each, theirs int
	elsewhere             time.Duration // on average
}

func (c crew) String() string {
	return fmt.Sprintf("%d × %d beside %d, %v elsewhere", c.clients, c.each, c.theirs, c.elsewhere)
}

// TestSharesOfGoroutinesBesideRedsync: neither party starves. With LOCKSTEP_TORTURE=1 and -v it measures the
// shares that docs/migrating.md tells.
func TestSharesOfGoroutinesBesideRedsync(t *testing.T) {
	if os.Getenv("LOCKSTEP_TORTURE") != "1" {
		crew{clients: 1, each: 8, theirs: 8}.play(t, 100, 5)
		return
	}
	for _, c := range []crew{
		{1, 1, 1, 0}, {1, 4, 4, 0}, {1, 16, 16, 0}, {4, 4, 16, 0}, {1, 16, 2, 0},
		{1, 16, 16, 50 * time.Millisecond}, {1, 16, 16, 300 * time.Millisecond}, {4, 4, 16, 50 * time.Millisecond}, {1, 16, 2, 50 * time.Millisecond},
	} {
		c.play(t, 1000, 10)
	}
}

// play ends after so many grants, or later if a party has had fewer than least. On a busy machine a
// party may come late, so play gives up only after ten times as many.
func (c crew) play(t *testing.T, grants, least int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 100})
	defer client.Close()
	ctx, over := context.WithCancel(t.Context())
	defer over()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ours, theirs int
	work := func(lock locking, share *int) {
		for ctx.Err() == nil {
			release, err := lock(ctx, "key")
			if ctx.Err() != nil && err != nil {
				return
			}
			if err != nil {
				t.Errorf("no lock: %v", err)
				over()
				return
			}
			mu.Lock()
			if all := ours + theirs; all < grants || min(ours, theirs) < least && all < 10*grants {
				*share++
			} else {
				over()
			}
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			if err := release(); err != nil {
				t.Errorf("release: %v", err)
			}
			time.Sleep(time.Duration(2 * rand.Float64() * float64(c.elsewhere)))
		}
	}
	for range c.clients {
		locks := locker.New(single.New(lockgoredis.New(client)), locker.WithSharedKeys())
		for range c.each {
			wg.Go(func() {
				work(func(ctx context.Context, key string) (func() error, error) {
					l, err := locks.Lock(ctx, key)
					return func() error { return l.Unlock(context.Background()) }, err
				}, &ours)
			})
		}
	}
	rs := redsync.New(goredis.NewPool(client))
	for range c.theirs {
		wg.Go(func() {
			work(func(ctx context.Context, key string) (func() error, error) {
				m := rs.NewMutex(key, redsync.WithExpiry(long), redsync.WithTries(10_000), redsync.WithTimeoutFactor(1))
				return func() error { return answer(m.Unlock()) }, m.LockContext(ctx)
			}, &theirs)
		})
	}
	wg.Wait()
	t.Logf("%v: %d ours, %d theirs: %d %%", c, ours, theirs, 100*ours/max(ours+theirs, 1))
	if ours < least || theirs < least {
		t.Errorf("%v: ours have %d grants, theirs %d; want at least %d each", c, ours, theirs, least)
	}
}
