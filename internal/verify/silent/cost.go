package silent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Cost is what calls pay for connections that fall silent under them.
type Cost struct {
	Silent   int   // connections that fell silent
	Commands int64 // that were on them
	Pairs    int64 // of Lock and Unlock
	Stalled  int64 // calls that took longer than stall
	Failed   int64 // calls with an error
	First    error // one of them
}

// Each is n for each connection that fell silent. It depends on the machine less than n.
func (c Cost) Each(n int64) float64 { return float64(n) / float64(c.Silent) }

func (c Cost) String() string {
	return fmt.Sprintf("for each of %d silent connections %.1f commands were on it, %.1f calls took longer than %v, and %.1f failed (%d pairs)",
		c.Silent, c.Each(c.Commands), c.Each(c.Stalled), stall, c.Each(c.Failed), c.Pairs)
}

const (
	stall = 500 * time.Millisecond
	pause = 300 * time.Millisecond // between two connections that fall silent
)

// Goroutines is how many call at once in [Campaign].
const Goroutines = 200

// Campaign measures pairs of locks over a client library, with shared round trips and without, each
// with 40 connections that fall silent. It fails if more calls fail than were on these. It takes half
// a minute, and runs with LOCKSTEP_TORTURE=1 only.
func Campaign(t *testing.T, open func(t *testing.T, addr string) (shared, alone *redisstore.Store)) {
	if os.Getenv("LOCKSTEP_TORTURE") != "1" {
		t.Skip("a campaign: it runs with LOCKSTEP_TORTURE=1")
	}
	const events = 40
	server := redistest.Start(t)
	for _, isShared := range []bool{true, false} {
		name := map[bool]string{true: "shared round trips", false: "each call alone"}[isShared]
		t.Run(name, func(t *testing.T) {
			p := Before(t, server.Addr())
			shared, store := open(t, p.Addr())
			if isShared {
				store = shared
			}
			cost := Measure(t, p, Goroutines, events, LockAndUnlock(locker.New(single.New(store))))
			t.Log(cost)
			if cost.First != nil {
				t.Logf("one of the errors: %v", cost.First)
			}
			if cost.Failed > cost.Commands {
				t.Errorf("%d calls failed, and %d were on silent connections", cost.Failed, cost.Commands)
			}
		})
	}
}

// Pairs is Lock and Unlock. It calls clock with each of them.
type Pairs func(ctx context.Context, key string, clock func(call func() error) error) error

// LockAndUnlock makes pairs of locks.
func LockAndUnlock(locks *locker.Client) Pairs {
	return func(ctx context.Context, key string, clock func(func() error) error) error {
		var l *locker.Lock
		if err := clock(func() (err error) { l, err = locks.Lock(ctx, key); return err }); err != nil {
			return err
		}
		return clock(func() error { return l.Unlock(ctx) })
	}
}

// Measure lets goroutines make pairs on keys of their own, over connections through p, of which one
// after the other falls silent for good. Its request arrives, and its reply is lost.
func Measure(tb testing.TB, p *Proxy, goroutines, events int, pair Pairs) Cost {
	tb.Helper()
	l := &load{stop: make(chan struct{})}
	for g := range goroutines {
		l.all.Go(func() { l.run(g, pair) })
	}
	time.Sleep(pause)
	before := p.swallowed()
	for range events {
		<-p.Swallow(true)
		time.Sleep(pause)
	}
	close(l.stop)
	l.all.Wait()
	l.cost.Silent, l.cost.Commands = events, p.swallowed()-before
	return l.cost
}

// load is goroutines that make pairs.
type load struct {
	stop chan struct{}
	all  sync.WaitGroup

	mu   sync.Mutex
	cost Cost
}

func (l *load) run(g int, pair Pairs) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
			l.one(fmt.Sprintf("key %d of %d", i%50, g), pair)
		}
	}
}

func (l *load) one(key string, pair Pairs) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stalled atomic.Int64
	err := pair(ctx, key, func(call func() error) error {
		began := time.Now()
		defer func() {
			if time.Since(began) > stall {
				stalled.Add(1)
			}
		}()
		return call()
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cost.Pairs++
	l.cost.Stalled += stalled.Load()
	if err != nil {
		l.cost.Failed++
		l.cost.First = err
	}
}

// commandsIn is how many commands of RESP begin in b.
func commandsIn(b []byte) int64 {
	n := int64(bytes.Count(b, []byte("\r\n*")))
	if bytes.HasPrefix(b, []byte("*")) {
		n++
	}
	return n
}
