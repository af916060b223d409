package rueidisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/rueidis"
)

// BenchmarkPairs is 64 goroutines that acquire and release, each a key of its own: SET and the
// release script by rueidis alone, in turns with the same through the store, a strategy and a
// Client, on one connection pool. It tells pairs per second, and the median of the ratios to the
// raw ones of the same turn.
func BenchmarkPairs(b *testing.B) {
	const goroutines, each = 64, 100
	c := dial(b, redistest.Start(b).Addr())
	store := rueidisstore.New(c)
	strategy := single.New(store)
	locks := locker.New(strategy, locker.WithTTL(20*time.Second))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	contenders := []struct {
		name string
		pair func(key string) error
	}{
		{"raw", rawPair(ctx, c)},
		{"raw-again", rawPair(ctx, c)}, // what the noise is
		{"store", func(key string) error {
			if r, err := store.SetNX(ctx, key, "token", 20*time.Second); err != nil || !r.OK {
				return fmt.Errorf("SetNX = %+v, %w", r, err)
			}
			_, err := store.DeleteIf(ctx, key, "token")
			return err
		}},
		{"single", func(key string) error {
			lease, err := strategy.Acquire(ctx, contract.Request{Key: key, Token: contract.NewToken(), TTL: 20 * time.Second})
			if err != nil {
				return err
			}
			return strategy.Release(ctx, lease)
		}},
		{"client", clientPair(ctx, locks)},
		{"client-endless", clientPair(context.Background(), locks)},
		{"raw-endless", rawPair(context.Background(), c)},
	}
	times := make([][]float64, len(contenders))
	for turn := 0; b.Loop(); turn++ {
		for i := range contenders {
			n := (turn + i) % len(contenders)
			began := time.Now()
			var running sync.WaitGroup
			for g := range goroutines {
				running.Go(func() {
					key := fmt.Sprint("key", g)
					for range each {
						if err := contenders[n].pair(key); err != nil {
							b.Error(contenders[n].name, err)
							return
						}
					}
				})
			}
			running.Wait()
			times[n] = append(times[n], time.Since(began).Seconds())
		}
	}
	for i, c := range contenders {
		ratios := make([]float64, len(times[i]))
		for turn := range ratios {
			ratios[turn] = times[0][turn] / times[i][turn]
		}
		b.ReportMetric(goroutines*each/median(times[i]), c.name+"-pairs/s")
		b.ReportMetric(median(ratios), c.name+"/raw")
	}
}

// rawPair is what one would write by hand: keys named to the builder, the script by its digest.
func rawPair(ctx context.Context, c client.Client) func(key string) error {
	release := client.NewLuaScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	return func(key string) error {
		if err := c.Do(ctx, c.B().Set().Key(key).Value("token").Nx().PxMilliseconds(60000).Build()).Error(); err != nil {
			return err
		}
		return release.Exec(ctx, c, []string{key}, []string{"token"}).Error()
	}
}

func clientPair(ctx context.Context, locks *locker.Client) func(key string) error {
	return func(key string) error {
		l, err := locks.Lock(ctx, key)
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
