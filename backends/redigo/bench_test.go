package redigo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// BenchmarkSetNXDeleteIf is beside the same two commands by redigo alone.
func BenchmarkSetNXDeleteIf(b *testing.B) {
	pool := dial(b, redistest.Start(b).Addr(), client.DialReadTimeout(time.Second))
	script := client.NewScript(1, `return redis.call("get", KEYS[1]) == ARGV[1] and redis.call("del", KEYS[1])
		and redis.call("publish", ARGV[2], "")`)
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := pool.Get()
			if _, err := client.String(c.Do("SET", "key", "token", "NX", "PX", 60000)); err != nil {
				b.Fatal(err)
			}
			c.Close()
			c = pool.Get()
			if _, err := client.Int(script.Do(c, "key", "token", "{key}:wake")); err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"endless ctx": context.Background(), "cancellable ctx": cancellable} {
		b.Run(name, func(b *testing.B) {
			s := redigo.New(pool)
			b.ReportAllocs()
			for b.Loop() {
				if res, err := s.SetNX(ctx, "key", "token", 20*time.Second); err != nil || !res.OK {
					b.Fatal(res, err)
				}
				if ok, err := s.DeleteIf(ctx, "key", "token"); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// BenchmarkSetNXDeleteIfAtOnce is by 64 goroutines, each with a key of its own, in turns. See the
// ratio: the rest is this machine.
func BenchmarkSetNXDeleteIfAtOnce(b *testing.B) {
	pool := dial(b, redistest.Start(b).Addr(), client.DialReadTimeout(time.Second))
	pool.MaxIdle = 64
	script := client.NewScript(1, `return redis.call("get", KEYS[1]) == ARGV[1] and redis.call("del", KEYS[1])
		and redis.call("publish", ARGV[2], "")`)
	raw := func(key string) {
		c := pool.Get()
		defer c.Close()
		if _, err := client.String(c.Do("SET", key, "token", "NX", "PX", 60000)); err != nil {
			b.Error(err)
		}
		if _, err := client.Int(script.Do(c, key, "token", "{"+key+"}:wake")); err != nil {
			b.Error(err)
		}
	}
	s := redigo.New(pool)
	shared := func(key string) {
		if res, err := s.SetNX(b.Context(), key, "token", 20*time.Second); err != nil || !res.OK {
			b.Error(res, err)
		}
		if ok, err := s.DeleteIf(b.Context(), key, "token"); err != nil || !ok {
			b.Error(ok, err)
		}
	}
	turn := func(call func(key string)) time.Duration {
		var all sync.WaitGroup
		began := time.Now()
		for g := range 64 {
			all.Go(func() {
				for range 20 {
					call(fmt.Sprint("key", g))
				}
			})
		}
		all.Wait()
		return time.Since(began)
	}
	turn(raw) // connects
	var ratios []float64
	for b.Loop() {
		alone := turn(raw)
		ratios = append(ratios, float64(alone)/float64(turn(shared)))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-raw")
}
