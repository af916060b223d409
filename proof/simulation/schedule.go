package simulation

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
)

// A Schedule is one run: workers in some processes contend for a few keys under a fault. The seed
// decides the rest.
type Schedule struct {
	Strategy Strategy
	Fault    Fault
	Seed     uint64

	mutant mutant
}

// mutant is a defect below the strategy, for a test of the checkers.
type mutant struct {
	commands func(commands) commands // of each node
	// what a process sends in place of a ttl
	lasting   func(d dice) func(ttl time.Duration) time.Duration
	unguarded bool // no node has a quarantine
}

// Run plays the schedule in a bubble of fake time and returns what happened.
func (s Schedule) Run(t *testing.T) *History {
	defer func() {
		if broken := recover(); broken != nil { // such as a goroutine that is left over
			panic(fmt.Sprintf("%v\n\treplay: %s", broken, s.Command()))
		}
	}()
	h := s.history()
	synctest.Test(t, func(t *testing.T) {
		h.began = time.Now()
		scene := s.set(t, h)
		scene.befall(s.Fault)
		scene.play()
	})
	h.settle()
	h.finals()
	return h
}

// RunInRealTime locks and unlocks once outside of a bubble, for a defect that only a real clock
// shows.
func (s Schedule) RunInRealTime(t *testing.T) *History {
	h := s.history()
	h.RealTime, h.began = true, time.Now()
	scene := s.set(t, h)
	ctx := context.WithValue(t.Context(), callerKey{}, &caller{worker: scene.workers[0].name})
	l, err := scene.processes[0].client.Lock(ctx, "a", locker.WithTTL(maxTTL))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock(t.Context())
	return h
}

func (s Schedule) history() *History {
	return &History{
		Strategy: s.Strategy, Fault: s.Fault, Seed: s.Seed, Kind: kindOf(s.Seed), Slots: s.Strategy.hasSlots(s.Seed), Handover: throwFor(s.Seed, "handover").chance(0.5),
		names: map[string]string{}, drawn: map[string]int{},
	}
}

// Command returns the command that plays the schedule again and prints its history.
func (s Schedule) Command() string {
	return fmt.Sprintf("go test ./proof/simulation -run TestReplay -v -strategy %s -fault %s -seed %d", s.Strategy.Name, s.Fault, s.Seed)
}

// scene is all that takes part in a schedule.
type scene struct {
	h         *History
	keys      []string
	nodes     []*node
	processes []*process
	workers   []*worker
}

func (s Schedule) set(t *testing.T, h *History) *scene {
	d := throwFor(s.Seed, "scene")
	c := &scene{h: h, keys: []string{"a", "b"}[:1+d.IntN(2)]}
	if h.Kind == manyKeys {
		c.keys = []string{"a", "b", "c"}
	}
	counts := throwFor(s.Seed, "counts").chance(0.5)
	for i := range s.Strategy.Nodes {
		n := &node{number: i + 1, h: h, keys: c.keys, fresh: newMemory, counts: counts, unguarded: s.mutant.unguarded}
		if s.mutant.commands != nil {
			n.fresh = func() commands { return s.mutant.commands(newMemory()) }
		}
		n.begin()
		c.nodes = append(c.nodes, n)
	}
	for i := range s.crowd(d) {
		p := s.process(t, c, fmt.Sprint("c", i+1))
		c.processes = append(c.processes, p)
		crew := 1 + d.IntN(2)
		if h.Handover { // a handover needs two workers in a line
			crew++
		}
		for j := range crew {
			c.workers = append(c.workers, s.worker(c, p, fmt.Sprint(p.name, "w", j+1)))
		}
	}
	return c
}

// handovers is the limit for one lease. Half of the schedules have handovers.
const handovers = 2

// crowd returns the number of processes. Some queues are longer than the part whose waiters look
// for themselves.
func (s Schedule) crowd(d dice) int {
	n := 2 + d.IntN(2)
	if s.Strategy.Queued && d.chance(0.2) {
		n += 3
	}
	return n
}

func (s Schedule) process(t *testing.T, c *scene, name string) *process {
	d := throwFor(s.Seed, "process", name)
	p := &process{name: name, h: c.h}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	t.Cleanup(p.cancel)
	deaf, patience := d.chance(0.5), pick(d, 700*time.Millisecond, 5*time.Second)
	switch {
	case s.Fault == Ahead || s.Fault == Back:
		p.clock = new(wallclock.Clock)
	case s.Fault == Clock && s.Strategy.Legacy:
		p.clock = new(wallclock.Clock)
		p.clock.Jump(d.between(-time.Second, time.Second))
	}
	links := make([]*link, len(c.nodes))
	for i, n := range c.nodes {
		links[i] = &link{h: c.h, from: p, to: n, weather: s.Fault.weather(), deaf: deaf, patience: patience}
		if s.mutant.lasting != nil {
			links[i].lasting = s.mutant.lasting(throwFor(s.Seed, "clock", name))
		}
	}
	p.links = links
	strategy, err := s.Strategy.build(links)
	if err != nil {
		t.Fatal(err)
	}
	var opts []locker.ClientOption
	if c.h.Handover {
		opts = append(opts, locker.WithMaxHandovers(handovers))
	}
	if c.h.Kind == manyKeys {
		opts = append(opts, locker.WithMiddleware(func(next locker.Locker) locker.Locker { return holder{next, p} }))
	}
	p.client = locker.New(recorder{strategy, p}, opts...)
	return p
}

func (s Schedule) worker(c *scene, p *process, name string) *worker {
	d := throwFor(s.Seed, "worker", name)
	w := &worker{dice: d, name: name, process: p, h: c.h, ctx: p.ctx, keys: c.keys, polls: s.Strategy.Legacy, queued: s.Strategy.Queued}
	if d.chance(0.3) {
		w.ctx = context.Background()
	}
	if s.Strategy.Nested {
		w.owner = pick(d, name, name, "job", "")
	}
	return w
}

// play lets the workers work, and waits until nothing more can happen: all calls have returned, all
// messages have arrived and all leases have ended.
func (c *scene) play() {
	var all sync.WaitGroup
	for _, w := range c.workers {
		all.Go(w.run)
	}
	all.Wait()
	time.Sleep(time.Until(c.h.began.Add(calm)))
	time.Sleep(aftermath)
	c.h.End = c.h.now()
	for _, n := range c.nodes {
		c.h.Remains = append(c.h.Remains, n.remains()...)
	}
	// A strategy may look for what an attempt has left for a minute, and a call that is under way here
	// would wait for an answer: time stands still when play returns.
	for _, p := range c.processes {
		p.end()
	}
}

const aftermath = 25 * time.Second
