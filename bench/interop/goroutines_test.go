package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// crew are goroutines of Lockstep, on some Clients with WithOtherSoftware, and goroutines of redsync with
// its default delays. All of them want one key. Each works for 5 ms, and then does something else.
type crew struct {
	clients, each, theirs int
	elsewhere             time.Duration // on average
}

func (c crew) String() string {
	return fmt.Sprintf("%d × %d beside %d, %v elsewhere", c.clients, c.each, c.theirs, c.elsewhere)
}

// TestSharesOfGoroutinesBesideRedsync: neither party starves. With LOCKSTEP_TORTURE=1 and -v it measures the
// shares that docs/migrating.md tells. Of two crews of the same size, each has at least leastShare: if
// one waiter of a Client polls for all, ours have 3 to 8 %.
func TestSharesOfGoroutinesBesideRedsync(t *testing.T) {
	if !full.Size() {
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

// leastShare is in percent of all grants.
const leastShare = 15

// play ends after so many grants, or later if a party has had fewer than least or than leastShare. On a
// busy machine a party may come late, so play gives up only after ten times as many.
func (c crew) play(t *testing.T, grants, least int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 100})
	defer client.Close()
	all := newContest(t, grants, least)
	if c.each > 1 && c.clients*c.each == c.theirs { // with 1, a busy machine decides
		all.percent = leastShare
	}
	elsewhere := func() time.Duration { return time.Duration(2 * rand.Float64() * float64(c.elsewhere)) }
	for range c.clients {
		locks := ofLockstep(locker.New(single.New(lockgoredis.New(client)), locker.WithOtherSoftware()))
		for range c.each {
			all.add(locks, &all.ours, elsewhere)
		}
	}
	rs := redsync.New(goredis.NewPool(client))
	for range c.theirs {
		all.add(func(ctx context.Context, key string) (func() error, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(long), redsync.WithTries(10_000), redsync.WithTimeoutFactor(1))
			return func() error { return answer(m.Unlock()) }, m.LockContext(ctx)
		}, &all.theirs, elsewhere)
	}
	all.all.Wait()
	ours, theirs := all.ours, all.theirs
	t.Logf("%v: %d ours, %d theirs: %d %%", c, ours, theirs, 100*ours/max(ours+theirs, 1))
	if all.unfair() {
		t.Errorf("%v: ours have %d grants, theirs %d; want at least %d each, and %d %% of all", c, ours, theirs, least, all.percent)
	}
}
