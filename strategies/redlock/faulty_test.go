package redlock_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// faulty is a server, or a proxy before one, with a fault between begin and end.
type faulty struct {
	behind bool // a proxy
	wary   bool // the store uses quarantine
	mute   bool // it can't report what it has done, and a query would hang
	judged bool // a quorum must keep about the same speed
	begin  func(t testing.TB, s *redistest.Server, p *redistest.Proxy)
	end    func(s *redistest.Server, p *redistest.Proxy)
}

func do(t testing.TB, s *redistest.Server, args ...string) {
	t.Helper()
	if _, err := s.Do(args...); err != nil {
		t.Fatalf("%v = %v", args, err)
	}
}

// refusing is a server that answers commands with an error.
func refusing(args ...string) faulty {
	return faulty{
		begin: func(t testing.TB, s *redistest.Server, _ *redistest.Proxy) { do(t, s, args...) },
		end:   func(*redistest.Server, *redistest.Proxy) {},
	}
}

// saying is a server whose grants and scripts get a reply that real servers seldom give.
func saying(reply string) faulty {
	return faulty{
		behind: true,
		begin: func(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) {
			p.Add(redistest.Rule{Fault: redistest.Refuse, Reply: "-" + reply + "\r\n", Commands: []string{"SET", "EVAL", "EVALSHA"}, Times: -1})
		},
		end: func(*redistest.Server, *redistest.Proxy) {},
	}
}

var faults = map[string]faulty{
	"killed": {
		judged: true,
		begin:  func(_ testing.TB, s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
		end:    func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() },
	},
	"stopped": {
		judged: true,
		mute:   true,
		begin:  func(_ testing.TB, s *redistest.Server, _ *redistest.Proxy) { s.Pause() },
		end:    func(s *redistest.Server, _ *redistest.Proxy) { s.Resume() },
	},
	"black-holed": {
		judged: true,
		behind: true,
		begin:  func(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) { p.BlackHole(true) },
		end:    func(_ *redistest.Server, p *redistest.Proxy) { p.BlackHole(false) },
	},
	"quarantined": {
		judged: true,
		wary:   true,
		begin: func(_ testing.TB, s *redistest.Server, _ *redistest.Proxy) {
			s.Kill()
			s.Restart()
		},
		end: func(*redistest.Server, *redistest.Proxy) {},
	},
	"LOADING": saying("LOADING Redis is loading the dataset in memory"),
	"MISCONF": saying("MISCONF Errors writing to the AOF file: No space left on device"),
	"slow": {
		behind: true,
		begin: func(_ testing.TB, _ *redistest.Server, p *redistest.Proxy) {
			delay := 100 * time.Millisecond
			if full.Size() {
				delay = 500 * time.Millisecond
			}
			p.Add(redistest.Rule{Fault: redistest.DelayReply, Delay: delay, Commands: []string{"SET", "EVAL", "EVALSHA"}, Times: -1})
		},
		end: func(*redistest.Server, *redistest.Proxy) {},
	},
	"NOPERM":     refusing("ACL", "SETUSER", "default", "-set", "-eval", "-evalsha"),
	"OOM":        refusing("CONFIG", "SET", "maxmemory", "1"),
	"READONLY":   refusing("REPLICAOF", "127.0.0.1", "1"),
	"NOREPLICAS": refusing("CONFIG", "SET", "min-replicas-to-write", "1"),
	"BUSY": {
		begin: func(t testing.TB, s *redistest.Server, _ *redistest.Proxy) {
			do(t, s, "CONFIG", "SET", "busy-reply-threshold", "1")
			go func() { _, _ = s.Do("EVAL", "while true do end", "0") }()
			await(t, "the server is busy", func() bool {
				_, err := s.Do("GET", "key")
				return err != nil && strings.Contains(err.Error(), "BUSY")
			})
		},
		end: func(s *redistest.Server, _ *redistest.Proxy) { _, _ = s.Do("SCRIPT", "KILL") },
	},
}

// likeOthers are the faults that a quorum meets as it meets another one, and that only run in full size: black-holed
// as stopped, the errors as NOPERM, LOADING and READONLY.
var likeOthers = []string{"black-holed", "MISCONF", "OOM", "NOREPLICAS", "BUSY"}

// damaged is a quorum whose last nodes can be made faulty.
type damaged struct {
	quorum  locker.Locker
	client  *locker.Client
	servers []*redistest.Server
	proxies []*redistest.Proxy // nil: no proxies
	bad     int                // this many, at the end of the list
}

func damage(tb testing.TB, n, bad int, how faulty, limit time.Duration) *damaged {
	logging.Disable() // go-redis logs every failed dial
	d := &damaged{servers: redistest.StartN(tb, n), proxies: make([]*redistest.Proxy, n), bad: bad}
	stores := make([]backends.FencedStore, n)
	for i, s := range d.servers {
		addr := s.Addr()
		if how.behind && i >= n-bad {
			d.proxies[i] = redistest.NewProxy(tb, addr)
			addr = d.proxies[i].Addr()
		}
		var opts []redisstore.Option
		if !how.wary {
			opts = append(opts, redisstore.WithoutQuarantine())
		}
		// New would hang as long as go-redis does by default
		store, conn := goredis.Open(&redis.Options{Addr: addr}, opts...)
		tb.Cleanup(func() { conn.Close() })
		stores[i] = store
	}
	d.quorum = quorumOver(tb, stores, plain, redlock.WithNodeLimit(limit))
	d.client = locker.New(d.quorum, locker.WithTTL(30*time.Second))
	return d
}

func (d *damaged) each(do func(s *redistest.Server, p *redistest.Proxy)) {
	for i := len(d.servers) - d.bad; i < len(d.servers); i++ {
		do(d.servers[i], d.proxies[i])
	}
}

// run locks and unlocks, pairs times in all. It returns how many pairs failed, and the greatest
// number of goroutines.
func (d *damaged) run(tb testing.TB, goroutines, pairs int) (failed int64, most int) {
	var done, bad, peak atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for n := done.Add(1); n <= int64(pairs); n = done.Add(1) {
				lock, err := d.client.Lock(tb.Context(), fmt.Sprintf("key %d of %d", n%7, g))
				if err == nil {
					err = lock.Unlock(tb.Context())
				}
				if err != nil && bad.Add(1) < 4 {
					tb.Log(err)
				}
				if now := int64(runtime.NumGoroutine()); now > peak.Load() {
					peak.Store(now)
				}
			}
		})
	}
	all.Wait()
	return bad.Load(), int(peak.Load())
}

// asked counts the commands that the faulty servers got, as far as the servers can report it.
func (d *damaged) asked(how faulty) (commands int) {
	if how.mute {
		return 0
	}
	d.each(func(s *redistest.Server, p *redistest.Proxy) {
		if p != nil {
			commands += len(p.Seen())
			return
		}
		if info, err := s.Do("INFO", "stats"); err == nil {
			for line := range strings.Lines(info.(string)) {
				var n int
				if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
					commands += n - 1
				}
				// total_commands_processed does not include rejected commands
				if _, err := fmt.Sscanf(line, "total_error_replies:%d", &n); err == nil {
					commands += n
				}
			}
		}
	})
	return commands
}

// TestTheCostOfAFaultyNodeIsBounded counts the goroutines of the process, so no other test runs
// beside it. With LOCKSTEP_TORTURE=1 it compares throughput and memory with those of the healthy
// quorum, and needs a quiet machine.
func TestTheCostOfAFaultyNodeIsBounded(t *testing.T) {
	const goroutines = 16
	pairs, healthyPairs := 1000, 200
	if full.Size() { // compares how long they take
		pairs, healthyPairs = 30_000, 30_000
	}
	for _, size := range []struct{ n, bad int }{{3, 1}, {5, 2}} {
		for name, how := range faults {
			if !full.Size() && (size.n == 5 && name != "stopped" || slices.Contains(likeOthers, name)) {
				continue
			}
			t.Run(fmt.Sprintf("%d of %d %s", size.bad, size.n, name), func(t *testing.T) {
				limit := 5 * time.Second // of a node, for a machine that is busy
				if full.Size() {
					limit = redlock.DefaultNodeLimit
				}
				trial.WhileBusy(t, limit, func(t testing.TB, limit time.Duration) {
					before := runtime.NumGoroutine()
					d := damage(t, size.n, size.bad, how, limit)
					d.run(t, goroutines, pairs/10)
					began := time.Now()
					failed, healthy := d.run(t, goroutines, healthyPairs)
					quick, small := time.Since(began), heap()
					if failed > 0 {
						t.Fatalf("%d of %d failed on healthy nodes", failed, healthyPairs)
					}
					await(t, "all is free", func() bool { return locked(t, d.servers) == 0 })
					d.each(func(s *redistest.Server, p *redistest.Proxy) { how.begin(t, s, p) })
					commands := d.asked(how)
					began = time.Now()
					failed, most := d.run(t, goroutines, pairs)
					took, large := time.Since(began), heap()
					after := d.asked(how)
					if failed > 0 {
						t.Errorf("%d of %d failed", failed, pairs)
					}
					ratio, room := quick.Seconds()/took.Seconds()*float64(pairs)/float64(healthyPairs), 300*size.bad
					if full.Size() { // a busy machine shows nothing
						if how.judged && ratio < 0.7 {
							t.Errorf("%.2f of the healthy throughput", ratio)
						}
						if large > small+small/2+10<<20 {
							t.Errorf("%d KB of heap; healthy %d", large>>10, small>>10)
						}
					}
					if limit := healthy + healthy/2 + room; most > limit {
						t.Errorf("%d goroutines; healthy %d", most, healthy)
					}
					// A connection that gets READONLY is closed, and the command goes to the next one:
					// once for each connection of the pool.
					if n := after - commands; name != "slow" && n > (pairs/2+800)*size.bad && after > 0 && commands > 0 {
						t.Errorf("the faulty nodes got %d commands for %d pairs", n, pairs)
					}
					for i, s := range redlock.Servers(d.quorum) {
						if s.Entries > 1000 || s.Dropped > 0 {
							t.Errorf("node %d: %+v", i+1, s)
						}
					}
					// The goroutines of the connections, and a few for the prober.
					await(t, "nothing is left but the prober", func() bool {
						calls := 0
						for _, s := range redlock.Servers(d.quorum) {
							calls += s.Calls + s.Pending
						}
						links := 0 // a proxy that swallows everything keeps them open, with goroutines of this process
						d.each(func(_ *redistest.Server, p *redistest.Proxy) {
							if p != nil {
								links += p.Open()
							}
						})
						return calls <= 8*size.bad && runtime.NumGoroutine() <= before+2*10*size.n+40+4*links
					})
					t.Logf("%.0f pairs/s, healthy %.0f (%.2f); %d goroutines, healthy %d; %d KB, healthy %d; %d commands", float64(pairs)/took.Seconds(),
						float64(healthyPairs)/quick.Seconds(), ratio, most-before, healthy-before, large>>10, small>>10, after-commands)
					d.each(func(s *redistest.Server, p *redistest.Proxy) { how.end(s, p) })
				})
			})
		}
	}
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
