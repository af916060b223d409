// Command bench measures Lockstep beside raw commands and other lock libraries, on a redis-server
// that it starts itself. In one run the contenders take turns in random order, and every figure is
// a median. Absolute figures depend on the machine: compare only ratios of one run. The row "raw
// again" is the same code as "raw": the distance of its ratio from 1 is the noise.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/redis/go-redis/v9"
)

func main() {
	lab.Spin()
	rounds := flag.Int("rounds", 5000, "pairs measured per contender")
	pinned := flag.Bool("pin", true, "give client and server a CPU each, as if they were on two machines")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*rounds, *pinned); err != nil {
		log.Fatal(err)
	}
}

func run(rounds int, pinned bool) error {
	where := "client and server where the kernel puts them"
	if pinned {
		if err := lab.PinSelf(); err != nil {
			return err
		}
		where = "client and server on a CPU each"
	}
	server, err := lab.StartServer(pinned)
	if err != nil {
		return err
	}
	defer server.Kill()
	defer lab.KeepAwake()()
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	fmt.Printf("\nSequential lock+unlock of a free lock, %d pairs each, one go-redis client; %s\n\n", rounds, where)
	if err := sequential(client, rounds); err != nil {
		return err
	}
	return quorums(rounds, pinned)
}

// contender takes and releases one lock that no other contender wants.
type contender struct {
	name string
	pair func(ctx context.Context) error
	ctx  context.Context
}

// sequential prints the time of one lock and unlock.
func sequential(client *redis.Client, rounds int) error {
	canEnd, cancel := context.WithCancel(context.Background())
	defer cancel()
	never := context.Background()
	return measure(rounds, []contender{
		{"raw SET NX PX + EVALSHA", raw(client), never},
		{"raw again (A/A)", raw(client), never},
		{"raw, both as scripts", scripts(client), never},
		{"lockstep, ctx that can't end", lockstep(client), never},
		{"raw, cancellable ctx", raw(client), canEnd},
		{"lockstep, cancellable ctx", lockstep(client), canEnd},
		{"redislock, ctx that can't end", redislockPair(client), never},
		{"redsync, ctx that can't end", redsyncPair(client), never},
	})
}

// measure lets the contenders take turns and prints a table.
func measure(rounds int, contenders []contender) error {
	times := make([][]time.Duration, len(contenders))
	for round := range rounds + rounds/10 {
		for _, i := range rand.Perm(len(contenders)) {
			c := contenders[i]
			start := time.Now()
			if err := c.pair(c.ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if took := time.Since(start); round >= rounds/10 { // the first tenth warms up
				times[i] = append(times[i], took)
			}
		}
	}
	fmt.Printf("| contender | p50 µs | p99 µs | p50 / raw | allocations |\n|---|---|---|---|---|\n")
	var base float64
	for i, c := range contenders {
		slices.Sort(times[i])
		p50, p99 := lab.Micros(times[i], 50), lab.Micros(times[i], 99)
		if i == 0 {
			base = p50
		}
		allocs := testing.AllocsPerRun(500, func() { _ = c.pair(c.ctx) }) // it has worked thousands of times
		fmt.Printf("| %s | %.1f | %.1f | %.2f | %.0f |\n", c.name, p50, p99, p50/base, allocs)
	}
	return nil
}
