package interop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// interval is how often the others ask, and how long they leave the key alone after a release. A
// program that asks again at once after its own release is there before anybody who polls.
const interval = 50 * time.Millisecond

// locking waits for key and returns what releases it.
type locking func(ctx context.Context, key string) (release func() error, err error)

// others are workers of other software.
var others = map[string]func(client *redis.Client) locking{
	"redsync": func(client *redis.Client) locking {
		rs := redsync.New(goredis.NewPool(client))
		return func(ctx context.Context, key string) (func() error, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(long), redsync.WithTries(10_000), redsync.WithRetryDelay(interval),
				redsync.WithTimeoutFactor(1))
			return func() error { return answer(m.Unlock()) }, m.LockContext(ctx)
		}
	},
	"redislock": func(client *redis.Client) locking {
		locks := redislock.New(client)
		return func(ctx context.Context, key string) (func() error, error) {
			l, err := locks.Obtain(ctx, key, long, &redislock.Options{RetryStrategy: redislock.LinearBackoff(interval)})
			return func() error { return l.Release(context.Background()) }, err
		}
	},
	"a poller": func(client *redis.Client) locking {
		return func(ctx context.Context, key string) (func() error, error) {
			for {
				switch ok, err := client.SetNX(ctx, key, "a poller", long).Result(); {
				case err != nil:
					return nil, err
				case ok:
					return func() error { return client.Del(context.Background(), key).Err() }, nil
				}
				time.Sleep(interval)
			}
		}
	},
}

// TestSharesOfAKeyThatOtherSoftwareLocksToo: four Clients of ours with WithOtherSoftware, and four
// workers of another program. Nobody starves. With LOCKSTEP_TORTURE=1, on a machine that does
// nothing else, nobody has less than a fifth of its fair share. With -v it also says who starves
// without the option.
func TestSharesOfAKeyThatOtherSoftwareLocksToo(t *testing.T) {
	for name, other := range others {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := servers{redistest.Start(t)}.clients(t)[0]
			neitherStarves(t, client, other(client))
		})
	}
}

// neitherStarves: see TestSharesOfAKeyThatOtherSoftwareLocksToo. That of node-redlock is in TestNodeRedlock.
func neitherStarves(t *testing.T, client *redis.Client, theirs locking) {
	t.Helper()
	grants, least := 60, 2
	if full.Size() {
		grants, least = 600, 600/2/5
	}
	our, their := shares(t, client, grants, least, theirs, locker.WithOtherSoftware())
	t.Logf("with WithOtherSoftware: %d ours, %d theirs", our, their)
	if our < least || their < least {
		t.Errorf("ours have %d grants, theirs %d; want at least %d each", our, their, least)
	}
	if testing.Verbose() {
		our, their = shares(t, client, grants, 0, theirs)
		t.Logf("without: %d ours, %d theirs", our, their)
	}
}

// shares has both parties lock one key until there were so many grants, and least for each party. On
// a busy machine a program of its own may come late, so it gives up only after ten times as many.
func shares(t *testing.T, client *redis.Client, grants, least int, other locking, opts ...locker.ClientOption) (ours, theirs int) {
	t.Helper()
	c := newContest(t, grants, least)
	for range 4 {
		locks := locker.New(single.New(lockgoredis.New(client)), opts...)
		c.add(ofLockstep(locks), &c.ours, func() time.Duration { return 0 })
		c.add(other, &c.theirs, func() time.Duration { return interval })
	}
	c.all.Wait()
	return c.ours, c.theirs
}

// contest is workers of ours and of another program, who want one key.
type contest struct {
	t             *testing.T
	grants, least int
	percent       int // the least share of a party; 0: see least
	ctx           context.Context
	over          context.CancelFunc
	all           sync.WaitGroup

	mu           sync.Mutex
	ours, theirs int // grants
}

// unfair tells that a party has had too few of the grants.
func (c *contest) unfair() bool {
	few := min(c.ours, c.theirs)
	return few < c.least || 100*few < c.percent*(c.ours+c.theirs)
}

// newContest is over after so many grants, and least for each party, or after ten times as many.
func newContest(t *testing.T, grants, least int) *contest {
	c := &contest{t: t, grants: grants, least: least}
	c.ctx, c.over = context.WithCancel(t.Context())
	t.Cleanup(c.over)
	return c
}

// add is a worker that locks the key, works for 5 ms, and pauses.
func (c *contest) add(lock locking, share *int, pause func() time.Duration) {
	c.all.Go(func() {
		for c.ctx.Err() == nil {
			release, err := lock(c.ctx, "key")
			if c.ctx.Err() != nil && err != nil {
				return
			}
			if err != nil {
				c.t.Errorf("no lock: %v", err)
				c.over()
				return
			}
			c.mu.Lock()
			if all := c.ours + c.theirs; all < c.grants || c.unfair() && all < 10*c.grants {
				*share++
			} else {
				c.over()
			}
			c.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			if err := release(); err != nil && !errors.Is(err, context.Canceled) {
				c.t.Errorf("release: %v", err)
			}
			time.Sleep(pause())
		}
	})
}

// ofLockstep locks with a Client of ours.
func ofLockstep(locks *locker.Client) locking {
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := locks.Lock(ctx, key)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Unlock(context.Background()) }, nil
	}
}
