package goredis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

// raw is the same two commands by go-redis alone.
func raw(c *client.Client) func(b *testing.B, ctx context.Context, key string) {
	script := client.NewScript(`return redis.call("get", KEYS[1]) == ARGV[1] and redis.call("del", KEYS[1])
		and redis.call("publish", ARGV[2], "")`)
	return func(b *testing.B, ctx context.Context, key string) {
		if ok, err := c.SetNX(ctx, key, "token", 20*time.Second).Result(); err != nil || !ok {
			b.Error(ok, err)
		}
		if err := script.Run(ctx, c, []string{key}, "token", "{"+key+"}:wake").Err(); err != nil {
			b.Error(err)
		}
	}
}

func pair(s *redisstore.Store) func(b *testing.B, ctx context.Context, key string) {
	return func(b *testing.B, ctx context.Context, key string) {
		if r, err := s.SetNX(ctx, key, "token", 20*time.Second); err != nil || !r.OK {
			b.Error(r, err)
		}
		if ok, err := s.DeleteIf(ctx, key, "token"); err != nil || !ok {
			b.Error(ok, err)
		}
	}
}

// BenchmarkPairs is SetNX and DeleteIf on keys of their own, with calls that share round trips, with those that do not, and
// by go-redis alone, in turns of 100 ms. See the ratios: the rest is this machine.
func BenchmarkPairs(b *testing.B) {
	c := client.NewClient(&client.Options{Addr: redistest.Start(b).Addr()})
	b.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	contenders := map[string]func(*testing.B, context.Context, string){
		"raw": raw(c), "shared": pair(New(c)), "unshared": pair(New(struct{ Client }{c})),
	}
	for _, goroutines := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			rates, medians := map[string][]float64{}, map[string][]float64{}
			for b.Loop() {
				for name, call := range contenders {
					rate, median := turn(goroutines, func(key string) { call(b, ctx, key) })
					rates[name], medians[name] = append(rates[name], rate), append(medians[name], median)
				}
			}
			for _, name := range []string{"shared", "unshared"} {
				b.ReportMetric(ratio(rates[name], rates["raw"]), name+"/raw")
				b.ReportMetric(ratio(medians[name], medians["raw"]), name+"-p50/raw")
			}
		})
	}
	for name, call := range contenders {
		b.Run("allocations/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b, ctx, "key")
			}
		})
	}
}

// turn tells the calls per second and the median of what they took.
func turn(goroutines int, call func(key string)) (rate, median float64) {
	var calls atomic.Int64
	var all sync.WaitGroup
	took := make([][]float64, goroutines)
	began := time.Now()
	for g := range goroutines {
		all.Go(func() {
			key := fmt.Sprint("key", g)
			for time.Since(began) < 100*time.Millisecond {
				started := time.Now()
				call(key)
				took[g] = append(took[g], float64(time.Since(started)))
				calls.Add(1)
			}
		})
	}
	all.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), middle(slices.Concat(took...))
}

// ratio is the median of those of each turn.
func ratio(of, to []float64) float64 {
	var each []float64
	for i := range of {
		each = append(each, of[i]/to[i])
	}
	return middle(each)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
