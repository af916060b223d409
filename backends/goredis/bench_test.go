package goredis

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
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

// BenchmarkPairs is SetNX and DeleteIf on keys of their own, with calls that share round trips,
// with those that do not, and by go-redis alone, in turns of 100 ms. See the ratios: the rest is
// this machine.
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

// BenchmarkRenewals holds locks with a TTL of 3 s. One op renews each of them once, which takes a
// second by the clock: compare CPU time and writes.
func BenchmarkRenewals(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { renew(b, n) })
	}
}

func renew(b *testing.B, n int) {
	var writes, renewals atomic.Int64
	c := client.NewClient(&client.Options{
		Addr: redistest.Start(b).Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return counted{conn, &writes}, err
		},
	})
	b.Cleanup(func() { c.Close() })
	round := make(chan struct{}, 1)
	count := func(next locker.Locker) locker.Locker {
		return renewed{next, func() {
			if renewals.Add(1)%int64(n) == 0 {
				select {
				case round <- struct{}{}:
				default: // the benchmark is over
				}
			}
		}}
	}
	locks := locker.New(single.New(New(c)), locker.WithTTL(3*time.Second), locker.WithMiddleware(count))
	var held []*locker.Lock
	for i := range n {
		l, err := locks.Lock(context.Background(), fmt.Sprint("key ", i))
		if err != nil {
			b.Fatal(err)
		}
		held = append(held, l)
	}
	sent, before := writes.Load(), renewals.Load()
	for b.Loop() {
		<-round
	}
	b.ReportMetric(float64(writes.Load()-sent)/float64(renewals.Load()-before), "writes/renewal")
	for _, l := range held {
		if err := l.Unlock(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// counted is a connection that counts its writes.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// renewed calls done after each Extend.
type renewed struct {
	locker.Locker
	done func()
}

func (r renewed) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	defer r.done()
	return r.Locker.Extend(ctx, lease, ttl)
}
