package stores

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

// A carrier is a store whose server runs in processes that this one has started. The server of NATS and
// SQLite run in this one.
type carrier struct {
	name string
	open func(tb testing.TB) backends.Store
}

// carriers are the stores of docs/scaling.md.
var carriers = []carrier{
	{"Redis", func(tb testing.TB) backends.Store {
		client := redis.NewClient(&redis.Options{Addr: redistest.Start(tb).Addr()})
		tb.Cleanup(func() { _ = client.Close() })
		return goredis.New(client, redisstore.WithMaxTTL(longest))
	}},
	{"PostgreSQL", func(tb testing.TB) backends.Store {
		pool, _ := postgres(tb)
		return pgxstore.New(pool, pgxstore.WithMaxTTL(longest))
	}},
	{"MariaDB", func(tb testing.TB) backends.Store {
		db, _ := mariadb(tb)
		return sqlstore.NewMySQL(db, sqlstore.WithMaxTTL(longest))
	}},
	{"SQLite", func(tb testing.TB) backends.Store {
		db, _ := sqlite(tb, "FULL")
		return sqlstore.NewSQLite(db, sqlstore.WithMaxTTL(longest))
	}},
	{"etcd", func(tb testing.TB) backends.Store { return etcd.New(etcds(tb)(), etcd.WithMaxTTL(longest)) }},
	{"NATS", func(tb testing.TB) backends.Store {
		_, conn, _ := natsServer(tb, true)
		return natsstore.New(conn, natsstore.WithMaxTTL(longest))
	}},
}

// BenchmarkScale measures what 10,000 locks cost a server: to take them, to renew each, and to release
// them, by 64 goroutines of one program. Client and server share the CPUs, so the rates are those of both
// together. What counts are the CPU times: a server with a CPU of its own does so many times as much.
//
//	cd bench && go test -run '^$' -bench Scale -benchtime 1x ./stores
//
// Of NATS and SQLite, which run in this process, what this process uses is reported. Memory is that of
// the processes of a server (PSS). A database keeps locks on disk, too.
func BenchmarkScale(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("the CPU time of the servers is read from /proc")
	}
	const locks = 10_000
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			store := c.open(b)
			key := func(i int) string { return "account/" + strconv.Itoa(i) }
			for b.Loop() { // once
				before := servers(b)
				took := atOnce(b, locks, func(ctx context.Context, i int) (bool, error) {
					r, err := store.SetNX(ctx, key(i), "0123456789ABCDEFGHIJKLMNOP", longest)
					return r.OK, err
				})
				taken := servers(b)
				b.ReportMetric(us(taken.cpu-before.cpu, locks), "take-CPU-µs")
				b.ReportMetric(locks/took.Seconds(), "takes/s")
				b.ReportMetric(float64(taken.memory-before.memory)/locks, "B/lock")

				took = atOnce(b, locks, func(ctx context.Context, i int) (bool, error) {
					return store.ExpireIf(ctx, key(i), "0123456789ABCDEFGHIJKLMNOP", longest)
				})
				renewed := servers(b)
				b.ReportMetric(us(renewed.cpu-taken.cpu, locks), "renew-CPU-µs")
				b.ReportMetric(locks/took.Seconds(), "renewals/s")

				took = atOnce(b, locks, func(ctx context.Context, i int) (bool, error) {
					return store.DeleteIf(ctx, key(i), "0123456789ABCDEFGHIJKLMNOP")
				})
				b.ReportMetric(us(servers(b).cpu-renewed.cpu, locks), "release-CPU-µs")
				b.ReportMetric(locks/took.Seconds(), "releases/s")
			}
		})
	}
}

// longest is how long the locks live: long enough for the slowest store.
const longest = 10 * time.Minute

func us(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(n) }

// atOnce calls f for each number below n from 64 goroutines.
func atOnce(tb testing.TB, n int, f func(ctx context.Context, i int) (bool, error)) time.Duration {
	tb.Helper()
	var workers sync.WaitGroup
	next, began := make(chan int, 64), time.Now()
	for range 64 {
		workers.Go(func() {
			for i := range next {
				if ok, err := f(context.Background(), i); err != nil || !ok {
					tb.Errorf("call %d: %v, %v", i, ok, err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return time.Since(began)
}

// usage is what processes use.
type usage struct {
	cpu    time.Duration
	memory int64 // bytes; memory that several share is counted once
}

// servers is the usage of all processes below this one, which are those of servers; of this one if there
// is none.
func servers(tb testing.TB) (sum usage) {
	tb.Helper()
	parents := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	spent := map[int]time.Duration{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after) // from the state on, see proc(5)
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, i := range []int{11, 12} { // utime, stime
			ticks, _ := strconv.ParseInt(fields[i], 10, 64)
			spent[pid] += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	below := func(pid int) bool {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == os.Getpid() {
				return true
			}
		}
		return false
	}
	for pid := range parents {
		if below(pid) {
			sum.cpu += spent[pid]
			sum.memory += shared(pid)
		}
	}
	if sum.memory == 0 {
		sum = usage{spent[os.Getpid()], shared(os.Getpid())}
	}
	return sum
}

// shared is the memory of a process, with its part of what it shares with others.
func shared(pid int) (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
