package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// relays are the strategies whose locks go from process to process.
var relays = []string{"single", "fair", "fenced", "semaphore", "redlock-3/2", "redlock-5/4"}

// relayFaults are those under which no strategy of relays loses its exclusion.
var relayFaults = []Fault{None, Net, Pause, Partition, Reboot, Storm, Ahead, Back, Fast, Split, OneWay}

// TestTicketsUnderEachFault lets locks go from process to process with tickets. Some tickets are sent
// to two processes, and some old holders send a release when the lock is another's. Whatever the
// network does:
//
//   - not more hold a lock at once than the strategy admits;
//   - one Resume of a ticket succeeds, at most, unless the network has doubled the request for the lock;
//   - the numbers of the holds rise;
//   - the old holder can't release the lock;
//   - in the end every lock is free.
//
// Without faults, a ticket that one process resumes in time is good.
func TestTicketsUnderEachFault(t *testing.T) {
	n := uint64(5)
	if *schedules > 0 {
		n = uint64(*schedules)
	}
	for _, name := range relays {
		for _, fault := range relayFaults {
			if *onlyStrategy != "" && *onlyStrategy != name || *onlyFault != "" && *onlyFault != string(fault) {
				continue
			}
			t.Run(name+" "+string(fault), func(t *testing.T) {
				t.Parallel()
				resumed := 0
				// A storm lets few tickets through, and the goroutines of a schedule run in any order: play on
				// until one is resumed.
				for s := *seed; s < *seed+n || resumed == 0 && n > 1 && s < *seed+20*n; s++ {
					wrong, passed := relay(t, name, fault, s)
					resumed += passed
					for _, w := range wrong {
						t.Errorf("%s\n\tagain: go test ./proof/simulation -run Tickets -strategy %s -fault %s -seed %d -schedules 1", w, name, fault, s)
					}
				}
				if resumed == 0 && n > 1 {
					t.Error("no ticket was resumed")
				}
			})
		}
	}
}

// relay plays one schedule. It returns what was wrong, and how many tickets were resumed.
func relay(t *testing.T, strategy string, fault Fault, seed uint64) (wrong []string, resumed int) {
	named, ok := StrategyNamed(strategy)
	if !ok {
		t.Fatalf("no strategy %q", strategy)
	}
	s := Schedule{Strategy: named, Fault: fault, Seed: seed}
	h := s.history()
	h.Kind, h.Handover = oneKey, false
	synctest.Test(t, func(t *testing.T) {
		h.began = time.Now()
		r := &passing{scene: s.set(t, h), schedule: s, t: t}
		r.befall(fault)
		var all sync.WaitGroup
		for _, w := range r.workers {
			all.Go(func() { r.run(w) })
		}
		all.Wait()
		time.Sleep(time.Until(h.began.Add(calm)))
		time.Sleep(aftermath)
		r.judge()
		wrong, resumed = r.wrong, r.resumed
	})
	return wrong, resumed
}

// passing is one schedule of locks that go from process to process.
type passing struct {
	*scene
	schedule Schedule
	t        *testing.T

	mu      sync.Mutex
	held    []*leg
	wrong   []string
	resumed int
}

// leg is one hold.
type leg struct {
	process  *process
	lock     *locker.Lock
	from, to time.Duration
}

func (r *passing) report(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *passing) run(w *worker) {
	for range 2 + w.IntN(3) {
		time.Sleep(w.between(1, 150*time.Millisecond))
		if w.process.isDead() {
			return
		}
		ctx := context.WithValue(w.process.ctx, callerKey{}, &caller{worker: w.name})
		l, err := w.process.client.Lock(ctx, pick(w.dice, w.keys...), locker.WithTTL(w.ttl()), locker.WithWait(w.between(20*time.Millisecond, 4*time.Second)))
		if err == nil {
			r.carry(w, r.begins(w.process, l))
		}
	}
}

// carry holds the lock, and gives it to other processes a few times.
func (r *passing) carry(w *worker, g *leg) {
	for hops := w.IntN(4); ; hops-- {
		l := g.lock
		select {
		case <-time.After(w.between(time.Millisecond, 300*time.Millisecond)):
		case <-l.Context().Done():
		}
		r.end(g)
		if g.process.isDead() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callerKey{}, &caller{worker: w.name}), time.Second)
		if hops == 0 {
			_ = l.Unlock(ctx)
			cancel()
			return
		}
		t, err := l.Transfer(ctx, maxTTL)
		if err != nil {
			_ = l.Unlock(ctx)
			cancel()
			return
		}
		cancel()
		next := r.resume(w, t, l.Lease().Token)
		if next == nil {
			return // the lease ends by itself
		}
		if w.chance(0.5) {
			r.releaseLate(w, g.process, l)
		}
		g = next
	}
}

// begins records a hold until end is called, or until the process or the lock is gone.
func (r *passing) begins(p *process, l *locker.Lock) *leg {
	g := &leg{process: p, lock: l, from: r.h.now(), to: Never}
	r.mu.Lock()
	r.held = append(r.held, g)
	r.mu.Unlock()
	context.AfterFunc(l.Context(), func() { r.end(g) })
	context.AfterFunc(p.ctx, func() { r.end(g) })
	return g
}

func (r *passing) end(g *leg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.to = min(g.to, r.h.now())
}

// resume lets one or two processes resume the ticket of the hold that has the token.
func (r *passing) resume(w *worker, t locker.Ticket, token string) (winner *leg) {
	asked := r.Perm(w)[:1+min(w.IntN(3), 1)*w.IntN(2)]
	sent, wait := r.h.now(), w.between(0, 200*time.Millisecond)
	var all sync.WaitGroup
	var won []*leg
	var refused error
	for _, p := range asked {
		all.Go(func() {
			time.Sleep(wait)
			ctx := context.WithValue(p.ctx, callerKey{}, &caller{worker: w.name})
			l, err := p.client.Resume(ctx, t, locker.WithTTL(maxTTL))
			var g *leg
			if err == nil {
				g = r.begins(p, l)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case err == nil:
				won = append(won, g)
				r.resumed++
			case !p.isDead():
				refused = err
			}
		})
	}
	all.Wait()
	if len(won) > 1 {
		if !r.cameTwice(token) {
			r.report("the ticket of %v was resumed by %d processes", sent, len(won))
		}
		for _, g := range won[1:] {
			r.release(w, g)
		}
	}
	if r.schedule.Fault == None && len(won) == 0 && len(asked) == 1 && refused != nil {
		r.report("the ticket of %v was refused: %v", sent, refused)
	}
	if len(won) == 0 {
		return nil
	}
	return won[0]
}

// release ends a hold.
func (r *passing) release(w *worker, g *leg) {
	r.end(g)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callerKey{}, &caller{worker: w.name}), time.Second)
	defer cancel()
	_ = g.lock.Unlock(ctx)
}

// Perm returns the processes that live, in any order.
func (r *passing) Perm(w *worker) []*process {
	all := slices.Clone(r.processes)
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b *process) int { return cmp.Compare(btoi(a.isDead()), btoi(b.isDead())) })
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// releaseLate sends a release of the old holder, who does not know that the lock is another's.
func (r *passing) releaseLate(w *worker, p *process, l *locker.Lock) {
	strategy, err := r.schedule.Strategy.build(p.links)
	if err != nil {
		r.t.Fatal(err)
	}
	lease := l.Lease()
	lease.Expires = time.Time{}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callerKey{}, &caller{worker: w.name}), 500*time.Millisecond)
	defer cancel()
	// A quorum without some node may say so of the rest, which has the old token.
	if err := strategy.Release(ctx, lease); err == nil && r.schedule.Strategy.Nodes == 1 && !r.cameTwice(lease.Token) {
		r.report("the old holder %s has released %q, which is another's", p.name, lease.Key)
	}
}

// cameTwice tells whether the network has doubled the request for the token. The second one may have
// come when the first hold had gone to another process, and a semaphore had room for one more. Then
// the token has a permit again: the old holder can release it, and the ticket finds it.
func (r *passing) cameTwice(token string) bool {
	if r.schedule.Strategy.Permits < 2 {
		return false
	}
	name := r.h.name(token)
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return slices.ContainsFunc(r.h.Messages, func(m *Message) bool {
		return m.Op == "Enter" && m.Token == name && len(m.Arrived) > 1
	})
}

func (r *passing) judge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.held, func(a, b *leg) int { return cmp.Compare(a.from, b.from) })
	most := max(r.schedule.Strategy.Permits, 1)
	for i, x := range r.held {
		at, last := 1, (*leg)(nil)
		for _, y := range r.held[:i] {
			if y.lock.Key() != x.lock.Key() {
				continue
			}
			if last = y; y.to > x.from {
				at++
			}
		}
		if at > most {
			r.wrong = append(r.wrong, fmt.Sprintf("%d hold %q when %s gets it at %v", at, x.lock.Key(), x.process.name, x.from))
		}
		if r.schedule.Strategy.Numbered && last != nil && x.lock.Fence() <= last.lock.Fence() {
			r.wrong = append(r.wrong, fmt.Sprintf("number %d of %s at %v after %d of %s", x.lock.Fence(), x.process.name, x.from, last.lock.Fence(), last.process.name))
		}
	}
	for _, n := range r.nodes {
		for _, s := range n.remains() {
			if s.Is {
				r.wrong = append(r.wrong, fmt.Sprintf("node %d still has %q of %q", s.Node, s.After, s.Key))
			}
		}
	}
}
