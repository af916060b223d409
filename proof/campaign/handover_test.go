package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestHandOversWithBrokenWakes asks whether a waiter can be forgotten. A hundred goroutines in ten
// Clients, over all four ways to reach the server, want one lock repeatedly. Meanwhile the
// connections for wakes break, or never work. Often the head of a Client's line leaves it, perhaps
// with a wake for all waiters behind it. The lease is very long, so a lock that nobody takes stays
// free.
//
//   - Nobody is stuck: when the faults end, each of the hundred gets the lock once more.
//   - No two hold it at once.
//   - No gap between the end of a hold and the next grant is of the order of the lease.
//
// It prints how long those gaps were. A waiter that has missed every wake looks again after at most
// 250 ms; see also TestWaitersWhoMissAWake.
//
//	go test ./proof/campaign -run TestHandOversWithBrokenWakes -v                      1,200 holds
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestHandOversWithBrokenWakes -v   12,000
//
// To change it: ways are the faults, and the constants say after how many holds they come.
func TestHandOversWithBrokenWakes(t *testing.T) {
	handOvers := 400
	if full.Size() {
		handOvers = 4000
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			atLast := nothingRunsOn(t)
			server := redistest.Start(t)
			q := queue(t, server, way)
			began := time.Now()
			q.run(t, handOvers)
			atLast() // with all clients still open
			for _, cn := range q.connections {
				cn.close()
			}
			noConnectionStays(t, q.proxies)
			t.Logf("%s; %d calls left the line, %d of them as its head; %d calls failed; in %v", &q.log, q.gaveUp.Load(), q.heads.Load(),
				q.failed.Load(), time.Since(began).Round(time.Millisecond))
			matrix.Cell{
				Strategy: "single", Fault: "wake-ups lost", Where: "redis-server", Trials: len(q.log.holds), Violations: len(history.Overlaps(q.log.holds)),
				Command: command("TestHandOversWithBrokenWakes"),
			}.Report(t)
		})
	}
}

const (
	lines       = 10 // Clients
	waitersEach = 10
	breakEvery  = 10 // holds
	giveUpEvery = 7
	// much longer than a wake on any machine, and much shorter than the lease
	longestGap   = 20 * time.Second
	theQueuesTTL = 5 * time.Minute
	turn         = 5 * patience // for one grant: there is no order among Clients, so some wait long
)

// A way is how wakes break: first before anybody waits, again while they wait.
type way struct {
	name  string
	first func(*redistest.Proxy)
	again func(t *testing.T, server *redistest.Server, p *redistest.Proxy)
}

var ways = []way{
	{"their connections are killed by the server", nil, func(t *testing.T, server *redistest.Server, _ *redistest.Proxy) {
		killSubscriptions(t, server)
	}},
	{"all connections of a Client are reset", nil, func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.CutAll() }},
	{"no wake ever arrives", loseSubscriptions, nil},
}

func killSubscriptions(t *testing.T, server *redistest.Server) {
	if _, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Error(err)
	}
}

func loseSubscriptions(p *redistest.Proxy) {
	p.Add(redistest.Rule{Commands: []string{"SUBSCRIBE"}, Fault: redistest.LoseRequest, Times: -1})
}

// A waitingQueue is ten Clients with ten waiters each.
type waitingQueue struct {
	server      *redistest.Server
	way         way
	proxies     []*redistest.Proxy // by Client
	connections []connection
	clients     []*locker.Client
	inLine      []line // by Client

	log                   holdLog
	gaveUp, heads, failed atomic.Int64
}

func queue(t *testing.T, server *redistest.Server, way way) *waitingQueue {
	q := &waitingQueue{server: server, way: way, inLine: make([]line, lines)}
	for i := range lines {
		p := redistest.NewProxy(t, server.Addr())
		if way.first != nil {
			way.first(p)
		}
		cn := libraries[i%len(libraries)].dial(t, p.Addr())
		q.proxies, q.connections = append(q.proxies, p), append(q.connections, cn)
		q.clients = append(q.clients, locker.New(single.New(cn.store), locker.WithTTL(theQueuesTTL)))
	}
	return q
}

// run lets them wait until there were so many holds, and then each once more without faults.
func (q *waitingQueue) run(t *testing.T, handOvers int) {
	var all sync.WaitGroup
	for i := range lines {
		for w := range waitersEach {
			all.Go(func() { q.wait(t, i, fmt.Sprintf("waiter %d of Client %d", w, i), handOvers) })
		}
	}
	all.Wait()
	if overlaps := history.Overlaps(q.log.holds); len(overlaps) > 0 {
		t.Errorf("%d overlaps, the first: %v", len(overlaps), overlaps[0])
	}
	if longest := q.log.longestGap(); longest > longestGap {
		t.Errorf("the lock was free for %v, and nobody took it", longest)
	}
}

// wait takes the lock repeatedly.
func (q *waitingQueue) wait(t *testing.T, client int, who string, handOvers int) {
	for last := false; ; {
		ctx, cancel := context.WithTimeout(context.Background(), turn)
		leave := q.inLine[client].enter(cancel)
		l, err := q.clients[client].Lock(ctx, "queue")
		leave()
		switch {
		case err == nil:
			n := q.log.hold(t, l, who)
			if n < handOvers {
				q.disturb(t, n)
			}
		case ctx.Err() == nil:
			q.failed.Add(1) // its connection was cut
			if errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: %v", who, err)
			}
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			t.Errorf("%s is stuck: %v", who, err)
			last = true
		default:
			q.gaveUp.Add(1)
		}
		cancel()
		if last && (err == nil || t.Failed()) {
			return
		}
		last = last || q.log.count() >= handOvers
	}
}

// disturb is called after the n-th hold.
func (q *waitingQueue) disturb(t *testing.T, n int) {
	if n%breakEvery == 0 && q.way.again != nil {
		q.way.again(t, q.server, q.proxies[n/breakEvery%lines])
	}
	if n%giveUpEvery == 0 && q.inLine[n/giveUpEvery%lines].first() {
		q.heads.Add(1)
	}
}

// A line has the waiters of one Client, in the order in which they asked.
type line struct {
	mu    sync.Mutex
	calls []*context.CancelFunc
}

// enter adds a call. leave removes it.
func (ln *line) enter(cancel context.CancelFunc) (leave func()) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	me := &cancel
	ln.calls = append(ln.calls, me)
	return func() {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		for i, c := range ln.calls {
			if c == me {
				ln.calls = append(ln.calls[:i], ln.calls[i+1:]...)
				return
			}
		}
	}
}

// first ends the ctx of the head of the line, if there is one.
func (ln *line) first() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if len(ln.calls) == 0 {
		return false
	}
	(*ln.calls[0])()
	return true
}
