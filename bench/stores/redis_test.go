package stores

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/redis/go-redis/v9"
)

// BenchmarkNativeCommands measures the scripts that release and extend a lock beside the commands of
// newer servers that compare: DELIFEQ of Valkey 9, DELEX of Redis 8.4, SET with IFEQ of Valkey 8.1
// and Redis 8.4. These commands tell no waiter and may shorten a lease, so the stores in this
// comparison have no wake-ups.
//
//	cd bench && PATH=$(../.ci/servers newest | tail -n 1):$PATH go test -run '^$' -bench NativeCommands -benchtime 20000x ./stores
func BenchmarkNativeCommands(b *testing.B) {
	const each = 200 // of one kind before the next, so that the server's CPU time can be told apart
	if b.N < each {
		return
	}
	server, err := lab.StartServer(false)
	must(b, err)
	defer server.Kill()
	c := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer c.Close()
	ctx := context.Background()
	store := goredis.New(c, redisstore.WithoutWakes(), redisstore.WithoutQuarantine())
	const ttl = 10 * time.Second

	deleting := []any{"DELIFEQ", "key", "token"}
	if err := c.Do(ctx, deleting...).Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
		deleting = []any{"DELEX", "key", "IFEQ", "token"}
		if err := c.Do(ctx, deleting...).Err(); err != nil {
			b.Skipf("this server has neither DELIFEQ nor DELEX: %v", err)
		}
	}
	set := func() error { return c.Do(ctx, "SET", "key", "token", "NX", "PX", ttl.Milliseconds()).Err() }
	yes := func(ok bool, err error) error {
		if err == nil && !ok {
			err = fmt.Errorf("not done")
		}
		return err
	}
	turns := []struct {
		name      string
		prepare   func() error
		run       func() error
		times     []time.Duration
		serverCPU time.Duration
	}{
		{name: "release by script", prepare: set, run: func() error { return yes(store.DeleteIf(ctx, "key", "token")) }},
		{name: "release by script, again", prepare: set, run: func() error { return yes(store.DeleteIf(ctx, "key", "token")) }},
		{name: "release by one command", prepare: set, run: func() error { n, err := c.Do(ctx, deleting...).Int(); return yes(n == 1, err) }},
		{name: "extend by script", prepare: set, run: func() error { return yes(store.ExpireIf(ctx, "key", "token", ttl)) }},
		{name: "extend by one command", prepare: set, run: func() error {
			return c.Do(ctx, "SET", "key", "token", "IFEQ", "token", "PX", ttl.Milliseconds()).Err()
		}},
	}
	order := []int{0, 1, 2, 3, 4}
	for range b.N / each {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			turn := &turns[i]
			keys := make([]time.Duration, 0, each)
			before, err := server.CPUTime()
			must(b, err)
			for range each {
				if err := turn.prepare(); err != nil && err != redis.Nil {
					b.Fatal(err)
				}
				start := time.Now()
				must(b, turn.run())
				keys = append(keys, time.Since(start))
			}
			after, err := server.CPUTime()
			must(b, err)
			turn.times, turn.serverCPU = append(turn.times, keys...), turn.serverCPU+after-before
			must(b, c.Del(ctx, "key").Err())
		}
	}
	for _, turn := range turns {
		slices.Sort(turn.times)
		b.Logf("%-26s p50 %6.1f µs, with its SET %5.2f µs of the server's CPU", turn.name,
			lab.Micros(turn.times, 50), float64(turn.serverCPU.Nanoseconds())/1000/float64(len(turn.times)))
	}
}
