package silent

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// cost is what calls pay for connections that fall silent under them.
type cost struct {
	silent   int   // connections that fell silent
	commands int64 // that were on them
	pairs    int64 // of Lock and Unlock
	stalled  int64 // calls that took longer than stall
	failed   int64 // pairs with an error
	last     error // of them
}

// each is n for each connection that fell silent. It depends on the machine less than n.
func (c cost) each(n int64) float64 { return float64(n) / float64(c.silent) }

func (c cost) String() string {
	return fmt.Sprintf("for each of %d silent connections %.1f commands were on it, %.1f calls took longer than %v, and %.1f failed (%d pairs)",
		c.silent, c.each(c.commands), c.each(c.stalled), stall, c.each(c.failed), c.pairs)
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
	full.Only(t)
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
			c := measure(p, events, locker.New(single.New(store)))
			t.Log(c)
			if c.last != nil {
				t.Logf("one of the errors: %v", c.last)
			}
			if c.failed > c.commands {
				t.Errorf("%d pairs failed, and %d commands were on silent connections", c.failed, c.commands)
			}
		})
	}
}

// measure lets goroutines make pairs on keys of their own, over connections through p, of which one after
// the other falls silent for good. Its request arrives, and its reply is lost.
func measure(p *Proxy, events int, locks *locker.Client) cost {
	l := &load{locks: locks, stop: make(chan struct{})}
	for g := range Goroutines {
		l.all.Go(func() { l.run(g) })
	}
	time.Sleep(pause)
	before := p.swallowed()
	for range events {
		<-p.Swallow(true)
		time.Sleep(pause)
	}
	close(l.stop)
	l.all.Wait()
	l.cost.silent, l.cost.commands = events, p.swallowed()-before
	return l.cost
}

// load is goroutines that make pairs.
type load struct {
	locks *locker.Client
	stop  chan struct{}
	all   sync.WaitGroup

	mu   sync.Mutex
	cost cost
}

func (l *load) run(g int) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
			l.pair(fmt.Sprintf("key %d of %d", i%50, g))
		}
	}
}

func (l *load) pair(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	lock, err := l.locks.Lock(ctx, key)
	var stalled int64
	clock := func() {
		if time.Since(began) > stall {
			stalled++
		}
		began = time.Now()
	}
	clock()
	if err == nil {
		err = lock.Unlock(ctx)
		clock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cost.pairs++
	l.cost.stalled += stalled
	if err != nil {
		l.cost.failed++
		l.cost.last = err
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
