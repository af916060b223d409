package campaign

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestTheClockOfAServerJumps moves the wall clock of one server by a minute while a lock with a TTL
// of half a minute is held. Another Client asks for the lock:
//
//   - Ahead: the server has forgotten the lock. One instance then has two holders (V), and so has a
//     bare majority. A larger quorum has not (S). A holder without a node to spare has still lost
//     the lock (U), and learns it at the next extension.
//   - Back: nobody gets it (S). But if its holder dies, the lock stays for one more minute (U).
//
// Run it alone: go test ./proof/campaign -run TestTheClockOfAServerJumps -v
func TestTheClockOfAServerJumps(t *testing.T) {
	const (
		jump = time.Minute
		ttl  = 30 * time.Second
		keys = 5 // one experiment each

		nodeLimit = 500 * time.Millisecond // of redlock
	)
	for client, connect := range clients {
		for _, c := range clockCells {
			t.Run(c.name+"/"+client, func(t *testing.T) {
				t.Parallel()
				servers := redistest.StartN(t, c.servers, redistest.WithMovableClock())
				var stores []numberedNested
				for _, s := range servers {
					stores = append(stores, connect(t, s))
				}
				l, other := locker.New(c.over(t, stores), locker.WithTTL(ttl)), locker.New(c.over(t, stores), locker.WithTTL(ttl))
				for _, s := range servers[c.holding:] { // these must not have the lease
					s.Kill()
				}
				var ahead, back []*locker.Lock
				for i := range keys {
					ahead = append(ahead, mustTryLock(t, l, fmt.Sprint("ahead ", i)))
					back = append(back, mustTryLock(t, l, fmt.Sprint("back ", i)))
				}
				if c.holding < c.servers {
					// until all calls to the dead servers have ended: a dial that is repeated would
					// find them alive
					time.Sleep(2 * nodeLimit)
				}
				for _, s := range servers[c.holding:] {
					s.Restart()
				}
				// a quorum does not wait for the last of them
				for _, s := range servers[:c.holding] {
					eventually(t, "all nodes have the lease", func() bool {
						n, err := s.Do("DBSIZE")
						return err == nil && n.(int64) >= 2*keys
					})
				}

				// with both client libraries
				again := command("TestTheClockOfAServerJumps/" + c.name)
				behind := matrix.Cell{Strategy: c.name, Fault: "server clock back", Where: "redis-server", Trials: keys, Command: again}
				before := matrix.Cell{Strategy: c.name, Fault: "server clock ahead", Where: "redis-server", Trials: keys, Command: again}

				servers[0].MoveClock(-jump)
				for _, lock := range back {
					if second, err := other.TryLock(t.Context(), lock.Key()); !errors.Is(err, locker.ErrHeld) {
						t.Errorf("back: two holders: %v, %v", second, err)
						behind.Violations++
					}
					if err := lock.Extend(t.Context(), ttl); err != nil || lock.Context().Err() != nil {
						t.Errorf("back: Extend = %v", err)
					}
				}
				left, err := servers[0].Do("PTTL", back[0].Key())
				if err != nil || left.(int64) < (ttl+jump/2).Milliseconds() {
					t.Errorf("back: the key lives for %v more ms, %v; want a minute more", left, err)
				} else if c.servers-1 < c.quorum { // no quorum without that server
					behind.Down = time.Duration(left.(int64)) * time.Millisecond
				}
				behind.Report(t)

				servers[0].MoveClock(jump)
				for i, lock := range ahead {
					if lock.Lease().Ended() && i > 0 { // on a busy machine, the others may have taken too long
						before.Trials--
						continue
					}
					second, err := other.TryLock(t.Context(), lock.Key())
					two := err == nil
					if two {
						before.Violations++
					}
					if two != c.violated || !two && !errors.Is(err, locker.ErrHeld) {
						t.Errorf("ahead: a second TryLock = %v; want two holders: %v", err, c.violated)
					}
					told := lock.Extend(t.Context(), 2*ttl)
					over := errors.Is(context.Cause(lock.Context()), locker.ErrLost)
					if errors.Is(told, locker.ErrLost) != c.lost || over != c.lost {
						t.Errorf("ahead: Extend = %v, the context: %v; want it lost: %v", told, context.Cause(lock.Context()), c.lost)
					}
					if second != nil && lock.Fence() != 0 && second.Fence() <= lock.Fence() {
						t.Errorf("ahead: fence %d after %d", second.Fence(), lock.Fence())
					}
					if c.lost && !c.violated { // the cleanup releases it
						began := time.Now()
						if _, err := other.Lock(t.Context(), lock.Key(), locker.WithWait(2*ttl)); err != nil {
							t.Errorf("ahead: Lock after the loss = %v", err)
						}
						before.Down = max(before.Down, time.Since(began))
					}
				}
				before.Report(t)
			})
		}
	}
}

// TestNumbersRiseWhateverTheClockOfTheServerDoes lets the clock jump ahead and back between grants.
func TestNumbersRiseWhateverTheClockOfTheServerDoes(t *testing.T) {
	for client, connect := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithMovableClock())
			locks := locker.New(fenced.New(connect(t, server)))
			var last uint64
			for i, by := range []time.Duration{0, time.Minute, 0, -time.Minute, time.Hour, 0, -time.Hour, 0} {
				server.MoveClock(by)
				for range 3 {
					lock := mustTryLock(t, locks, "key")
					if lock.Fence() <= last {
						t.Errorf("jump %d, to %v: fence %d after %d", i, by, lock.Fence(), last)
					}
					last = lock.Fence()
					if err := lock.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// numberedNested has the methods that the strategies here need.
type numberedNested interface {
	backends.NumberedStore
	backends.FencedStore
	backends.OrderedStore
}

var clients = map[string]func(t *testing.T, s *redistest.Server) numberedNested{
	"go-redis": func(t *testing.T, s *redistest.Server) numberedNested {
		// A dial that is repeated would find the server back, and that node would get the lease
		// after all.
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), DialerRetries: 1, MaxRetries: -1, PoolSize: 1000})
		t.Cleanup(func() { c.Close() })
		return goredis.New(c, beneath.Long)
	},
	"redigo": func(t *testing.T, s *redistest.Server) numberedNested {
		pool := &redigolib.Pool{MaxIdle: 10, Dial: func() (redigolib.Conn, error) { return redigolib.Dial("tcp", s.Addr()) }}
		t.Cleanup(func() { pool.Close() })
		return redigo.New(pool, beneath.Long)
	},
}

// clockCells say what happens to a strategy when the clock of one server jumps. The lease is on the
// first holding servers.
var clockCells = []struct {
	name             string
	servers, holding int
	quorum           int
	violated, lost   bool // after a jump ahead: two holders; the holder has lost the lock
	over             func(t *testing.T, stores []numberedNested) locker.Locker
}{
	{"single", 1, 1, 1, true, true, func(_ *testing.T, s []numberedNested) locker.Locker { return single.New(s[0]) }},
	{"fenced", 1, 1, 1, true, true, func(_ *testing.T, s []numberedNested) locker.Locker { return fenced.New(s[0]) }},
	{"reentrant", 1, 1, 1, true, true, func(_ *testing.T, s []numberedNested) locker.Locker { return reentrant.New(s[0]) }},
	{"semaphore of 1", 1, 1, 1, true, true, func(_ *testing.T, s []numberedNested) locker.Locker { return semaphore.New(s[0], 1) }},
	{"rwlock, a writer", 1, 1, 1, true, true, func(_ *testing.T, s []numberedNested) locker.Locker { return rwlock.New(s[0]).Writers() }},
	{"redlock 2 of 3, on 2", 3, 2, 2, true, true, quorumOf(2)},
	{"redlock 2 of 3, on 3", 3, 3, 2, false, false, quorumOf(2)},
	{"redlock 3 of 3", 3, 3, 3, false, true, quorumOf(3)},
	{"redlock 3 of 5, on 3", 5, 3, 3, true, true, quorumOf(3)},
	{"redlock 3 of 5, on 5", 5, 5, 3, false, false, quorumOf(3)},
	{"redlock 4 of 5, on 4", 5, 4, 4, false, true, quorumOf(4)},
	{"redlock 4 of 5, on 5", 5, 5, 4, false, false, quorumOf(4)},
	{"redlock numbered 3 of 5, on 3", 5, 3, 3, true, true, numberedQuorumOf(3)},
	{"redlock numbered 4 of 5, on 4", 5, 4, 4, false, true, numberedQuorumOf(4)},
}

func quorumOf(w int) func(t *testing.T, stores []numberedNested) locker.Locker {
	return func(t *testing.T, stores []numberedNested) locker.Locker {
		nodes := make([]locker.Locker, len(stores))
		for i, s := range stores {
			nodes[i] = single.New(s)
		}
		l, err := redlock.New(nodes, redlock.WithQuorum(w), redlock.WithNodeLimit(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func numberedQuorumOf(w int) func(t *testing.T, stores []numberedNested) locker.Locker {
	return func(t *testing.T, stores []numberedNested) locker.Locker {
		nodes := make([]backends.FencedStore, len(stores))
		for i, s := range stores {
			nodes[i] = s
		}
		l, err := redlock.NewFenced(nodes, redlock.WithQuorum(w), redlock.WithNodeLimit(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func mustTryLock(t *testing.T, c *locker.Client, key string) *locker.Lock {
	t.Helper()
	l, err := c.TryLock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
