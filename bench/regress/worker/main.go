// Command worker does the work of one case once, on servers that run already, and prints its cost
// as JSON. Command regress builds it against two versions of Lockstep, so it uses only names that
// both have.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// Cost is per pair of Lock and Unlock.
type Cost struct {
	P50         float64 // time from Lock to the end of Unlock, in µs
	Pairs       float64 // per second, of all goroutines
	CPU         float64 // of this process, in µs
	Allocations float64
	Commands    float64 // run by the servers
}

// A job is one case.
type job struct {
	clients     int  // each with connections of its own
	goroutines  int  // of each client
	sameKey     bool // all goroutines want one lock
	quorum      bool // of all servers
	cancellable bool // each call has a ctx that can be cancelled
}

var jobs = map[string]job{
	"a":     {clients: 1, goroutines: 1},
	"a-ctx": {clients: 1, goroutines: 1, cancellable: true},
	"b":     {clients: 1, goroutines: 64},
	"b-ctx": {clients: 1, goroutines: 64, cancellable: true},
	"c":     {clients: 1, goroutines: 16, sameKey: true},
	"c-16":  {clients: 16, goroutines: 1, sameKey: true},
	"d":     {clients: 2, goroutines: 1, sameKey: true},
	"e":     {clients: 1, goroutines: 1, quorum: true},
	"e-64":  {clients: 1, goroutines: 64, quorum: true},
	"e-ctx": {clients: 1, goroutines: 64, quorum: true, cancellable: true},
}

func main() {
	log.SetFlags(0)
	name := flag.String("case", "a", "the `case`")
	addrs := flag.String("addrs", "", "the `servers`, separated by commas")
	turn := flag.Duration("turn", time.Second, "how long to work")
	flag.Parse()
	j, known := jobs[*name]
	if !known {
		log.Fatalf("there is no case %q", *name)
	}
	cost, err := j.run(strings.Split(*addrs, ","), *turn)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(cost); err != nil {
		log.Fatal(err)
	}
}

func (j job) run(addrs []string, turn time.Duration) (Cost, error) {
	if !j.quorum {
		addrs = addrs[:1]
	}
	admins := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		admins[i] = redis.NewClient(&redis.Options{Addr: addr})
		defer admins[i].Close()
	}
	clients := make([]*locker.Client, j.clients)
	for i := range clients {
		c, end, err := open(addrs)
		if err != nil {
			return Cost{}, err
		}
		defer end()
		clients[i] = c
	}
	if _, err := j.work(clients, turn/5); err != nil { // warms up: opens connections, loads scripts
		return Cost{}, err
	}
	sent, err := commands(admins)
	if err != nil {
		return Cost{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := cpuTime(), time.Now()
	times, err := j.work(clients, turn)
	if err != nil {
		return Cost{}, err
	}
	took, used := time.Since(began), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	now, err := commands(admins)
	if err != nil {
		return Cost{}, err
	}
	slices.Sort(times)
	n := float64(len(times))
	return Cost{
		P50:         micros(times[len(times)/2]),
		Pairs:       n / took.Seconds(),
		CPU:         micros(used) / n,
		Allocations: float64(after.Mallocs-before.Mallocs) / n,
		Commands:    float64(now-sent) / n,
	}, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// open makes a Client with connections of its own.
func open(addrs []string) (*locker.Client, func(), error) {
	var nodes []locker.Locker
	var all []*redis.Client
	for _, addr := range addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		all = append(all, c)
		nodes = append(nodes, single.New(goredis.New(c)))
	}
	end := func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	if len(nodes) == 1 {
		return locker.New(nodes[0]), end, nil
	}
	l, err := redlock.New(nodes)
	if err != nil {
		end()
		return nil, nil, err
	}
	return locker.New(l), end, nil
}

// work returns the time of each pair.
func (j job) work(clients []*locker.Client, turn time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var working sync.WaitGroup
	for c, client := range clients {
		for g := range j.goroutines {
			working.Go(func() {
				key := fmt.Sprintf("regress:%d:%d:", c, g)
				if j.sameKey {
					key = "regress"
				}
				times, err := j.pairs(client, key, turn)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, times...)
				if err != nil {
					failed = err
				}
			})
		}
	}
	working.Wait()
	return all, failed
}

func (j job) pairs(client *locker.Client, key string, turn time.Duration) (times []time.Duration, err error) {
	for end := time.Now().Add(turn); time.Now().Before(end); {
		name := key
		if !j.sameKey { // the last release may still be under way on some nodes
			name += strconv.Itoa(len(times) % 64)
		}
		start := time.Now()
		if err := j.pair(client, name); err != nil {
			return times, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

func (j job) pair(client *locker.Client, key string) error {
	ctx := context.Background()
	if j.cancellable {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	l, err := client.Lock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// commands is the number of commands that the servers have run.
func commands(admins []*redis.Client) (all int64, err error) {
	for _, c := range admins {
		info, err := c.Info(context.Background(), "stats").Result()
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(info, "total_commands_processed:")
		text, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}
