package single_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// TestWhatASilentConnectionCosts makes one connection after another fall silent under 64
// goroutines, whose calls go out in batches. The calls of one batch wait a second, and under
// WithWait none of them fails.
//
// With LOCKSTEP_TORTURE=1 it takes longer. It then also prints the cost without WithWait, and the
// cost of go-redis calls without batches.
func TestWhatASilentConnectionCosts(t *testing.T) {
	events := 3
	if full.Size() {
		events = 40
	}
	lock := func(opts ...locker.ClientOption) func(c *client.Client) pairOfCalls {
		return func(c *client.Client) pairOfCalls {
			return lockAndUnlock(locker.New(single.New(goredis.New(c)), opts...))
		}
	}
	for _, contender := range []struct {
		name string
		pair func(c *client.Client) pairOfCalls
		must bool // all calls must succeed
	}{
		{"lockstep, WithWait", lock(locker.WithWait(10 * time.Second)), true},
		{"lockstep", lock(), false},
		{"go-redis", setAndDelete, false},
	} {
		if !contender.must && !full.Size() {
			continue
		}
		t.Run(contender.name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			_, c := goredis.Open(&client.Options{Addr: proxy.Addr(), PoolSize: 64}, redisstore.WithoutQuarantine())
			defer c.Close()
			load := beginLoad(t, contender.pair(c))
			for range events {
				time.Sleep(250 * time.Millisecond)
				silenced := proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"SET", "DEL", "EVAL", "EVALSHA"}, Times: 1})
				<-silenced.Fired()
			}
			load.end()
			each := func(n int64) float64 { return float64(n) / float64(events) }
			t.Logf("%d pairs; for each of %d silent connections %.1f calls took longer than 900 ms, and %.1f failed",
				load.pairs.Load(), events, each(load.late.Load()), each(load.failed.Load()))
			if contender.must && load.failed.Load() > 0 {
				t.Errorf("%d calls failed", load.failed.Load())
			}
		})
	}
}

// pairOfCalls are two calls that belong together. It calls clock before and after each.
type pairOfCalls func(ctx context.Context, key string, clock func(call func() error) error) error

func lockAndUnlock(locks *locker.Client) pairOfCalls {
	return func(ctx context.Context, key string, clock func(func() error) error) error {
		var l *locker.Lock
		if err := clock(func() (err error) { l, err = locks.Lock(ctx, key); return err }); err != nil {
			return err
		}
		return clock(func() error { return l.Unlock(ctx) })
	}
}

func setAndDelete(c *client.Client) pairOfCalls {
	return func(ctx context.Context, key string, clock func(func() error) error) error {
		if err := clock(func() error { return c.SetNX(ctx, key, "token", 10*time.Second).Err() }); err != nil {
			return err
		}
		return clock(func() error { return c.Del(ctx, key).Err() })
	}
}

// load is 64 goroutines that make pairs.
type load struct {
	stop                chan struct{}
	all                 sync.WaitGroup
	pairs, late, failed atomic.Int64
}

func beginLoad(t *testing.T, pair pairOfCalls) *load {
	l := &load{stop: make(chan struct{})}
	clock := func(call func() error) error {
		began := time.Now()
		err := call()
		if time.Since(began) > 900*time.Millisecond {
			l.late.Add(1)
		}
		return err
	}
	for g := range 64 {
		l.all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := l.one(pair, fmt.Sprintf("key %d of %d", i%50, g), clock); err != nil && l.failed.Add(1) < 4 {
					t.Log(err)
				}
			}
		})
	}
	return l
}

func (l *load) one(pair pairOfCalls, key string, clock func(func() error) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l.pairs.Add(1)
	return pair(ctx, key, clock)
}

func (l *load) end() {
	close(l.stop)
	l.all.Wait()
}
