package simulation

import "time"

// A Fault is what goes wrong in a schedule, repeatedly.
type Fault string

// The faults. Memory is lost by one or two nodes of a quorum, and always the same in one schedule.
const (
	None       Fault = "none"       // the network works, but holders die and callers stop waiting
	Net        Fault = "net"        // messages are lost, late or doubled
	Pause      Fault = "pause"      // a node pauses
	Partition  Fault = "partition"  // a process cannot reach any node for a while
	Reboot     Fault = "reboot"     // a node restarts with its memory
	Storm      Fault = "storm"      // all of these together
	Restart    Fault = "restart"    // a node restarts without its memory
	Quarantine Fault = "quarantine" // the same, and it grants nothing for as long as a lease may last
	Forget     Fault = "forget"     // a node loses locks, as by eviction
	Clock      Fault = "clock"      // the clock of a node jumps; under legacy-getset those of processes differ
	Ahead      Fault = "ahead"      // the wall clock of a process jumps ahead, as after a suspend
	Back       Fault = "back"       // the wall clock of a process jumps back
	Fast       Fault = "fast-0.9%"  // the clock of a node is fast, by less than the margin of a lease
	TooFast    Fault = "fast-3%"    // the same, by more
	Split      Fault = "split"      // a process cannot reach some of the nodes for a while
	Far        Fault = "far"        // a round trip is longer than a reservation for a waiter that is near
	OneWay     Fault = "one-way"    // requests of a process arrive and the answers do not, or the reverse
)

// Faults are all of them.
func Faults() []Fault {
	return []Fault{None, Net, Pause, Partition, Reboot, Storm, Restart, Quarantine, Forget, Clock, Ahead, Back, Fast, TooFast, Split, OneWay, Far}
}

// rate returns how fast the clock of a node runs: 0.03 is 3 % too fast.
func (f Fault) rate() float64 {
	switch f {
	case Fast:
		return 0.009
	case TooFast:
		return 0.03
	}
	return 0
}

// silences tells whether messages may take very long although the weather is still.
func (f Fault) silences() bool { return f == Pause || f == Partition || f == Split || f == OneWay }

var (
	still  = weather{}
	remote = weather{far: true}
	breeze = weather{lost: 0.02, replyLost: 0.02, reset: 0.5, slow: 0.02, wakeLost: 0.1, wakeLate: 0.05, wakeDoubled: 0.05}
	gale   = weather{lost: 0.04, replyLost: 0.05, reset: 0.3, doubled: 0.05, slow: 0.1, late: 0.03, wakeLost: 0.3, wakeLate: 0.1, wakeDoubled: 0.1}
)

func (f Fault) weather() weather {
	switch f {
	case None, Pause, Partition, Ahead, Back, Fast, TooFast, Split, OneWay:
		return still
	case Net, Storm:
		return gale
	case Far:
		return remote
	}
	return breeze
}

// calm is when the last fault has begun. The time after it shows whether everything recovers.
const calm = 10 * time.Second

// quarantine lasts as in package redisstore: the longest lease and a second.
const quarantine = maxTTL + time.Second

// befall sets the timers of all faults.
func (s *scene) befall(f Fault) {
	d := throwFor(s.h.Seed, "faults")
	s.killSomebody(d)
	who := d.Perm(len(s.nodes))[:min(1+d.IntN(victims), len(s.nodes))]
	switch f {
	case Pause:
		s.pauses(d)
	case Partition:
		s.partitions(d)
	case Reboot:
		s.reboots(d)
	case Storm:
		s.pauses(d)
		s.partitions(d)
		s.reboots(d)
	case Restart:
		for _, v := range who {
			s.restarts(d, v, 0)
		}
	case Quarantine:
		for _, v := range who {
			s.restarts(d, v, quarantine)
		}
	case Forget:
		for _, v := range who {
			s.again(d, 20*time.Millisecond, 600*time.Millisecond, func(dice) func() { return s.nodes[v].forget })
		}
	case Clock:
		s.clocks(d, who)
	case Ahead:
		s.wallClocks(d, 1)
	case Back:
		s.wallClocks(d, -1)
	case Fast, TooFast:
		for _, v := range who {
			s.nodes[v].runFast(f.rate())
		}
	case Split:
		s.splits(d)
	case OneWay:
		s.oneWay(d)
	}
}

// again strikes repeatedly until it is calm. All strokes are drawn at the beginning.
func (s *scene) again(d dice, least, most time.Duration, strike func(dice) func()) {
	for at := d.between(0, most); at < calm; at += d.between(least, most) {
		time.AfterFunc(at, strike(d))
	}
}

// killSomebody ends a process in one schedule of four. Where there are queues, this is often the
// head of one.
func (s *scene) killSomebody(d dice) {
	if d.chance(0.25) {
		at, p := d.between(100*time.Millisecond, 4*time.Second), pick(d, s.processes...)
		strike := p.kill
		if s.h.Strategy.Queued && d.chance(0.5) {
			strike = func() { s.nodes[0].atTheNextTurn((*process).kill) }
		}
		time.AfterFunc(at, strike)
	}
}

// longestPause is longer than the longest leases.
const longestPause = 2 * maxTTL

// pauses pauses one node after the other.
func (s *scene) pauses(d dice) {
	s.again(d, longestPause, longestPause+time.Second, func(d dice) func() {
		n, lasts := pick(d, s.nodes...), d.between(20*time.Millisecond, longestPause)
		return func() { n.pause(lasts) }
	})
}

// partitions cuts off one process after the other, often the head of a queue when the lock is
// reserved for it. Messages to and from the process arrive later.
func (s *scene) partitions(d dice) {
	s.again(d, longestPause, longestPause+time.Second, func(d dice) func() {
		p, lasts := pick(d, s.processes...), d.between(20*time.Millisecond, longestPause)
		if s.h.Strategy.Queued && d.chance(0.5) {
			return func() { s.nodes[0].atTheNextTurn(func(first *process) { first.cutOff(lasts) }) }
		}
		return func() { p.cutOff(lasts) }
	})
}

// splits cuts off one process after the other from one node, half of the nodes, or all nodes but
// one.
func (s *scene) splits(d dice) {
	s.again(d, longestPause, longestPause+time.Second, func(d dice) func() {
		p, lasts := pick(d, s.processes...), d.between(20*time.Millisecond, longestPause)
		n := len(s.nodes)
		from := d.Perm(n)[:max(pick(d, 1, n/2, n-1), 1)]
		return func() {
			for _, v := range from {
				p.cutOffFrom(p.links[v], lasts)
			}
		}
	})
}

// oneWay cuts off one process after the other, in one direction.
func (s *scene) oneWay(d dice) {
	s.again(d, longestPause, longestPause+time.Second, func(d dice) func() {
		p, lasts, hears := pick(d, s.processes...), d.between(20*time.Millisecond, longestPause), d.chance(0.5)
		if s.h.Strategy.Queued && d.chance(0.5) {
			return func() { s.nodes[0].atTheNextTurn(func(first *process) { first.cutOffOneWay(lasts, hears) }) }
		}
		return func() { p.cutOffOneWay(lasts, hears) }
	})
}

// reboots restarts one node after the other, none of which forgets.
func (s *scene) reboots(d dice) {
	s.again(d, 300*time.Millisecond, 1500*time.Millisecond, func(d dice) func() {
		n, down := pick(d, s.nodes...), d.between(time.Millisecond, 300*time.Millisecond)
		return func() { n.restart(down, false, 0) }
	})
}

// restarts restarts a node without its memory, no sooner than its last quarantine has ended.
func (s *scene) restarts(d dice, victim int, quarantine time.Duration) {
	s.again(d, 100*time.Millisecond+quarantine, time.Second+2*quarantine, func(d dice) func() {
		down := d.between(time.Millisecond, 50*time.Millisecond)
		return func() { s.nodes[victim].restart(down, true, quarantine) }
	})
}

// clocks lets the clocks of nodes jump, by a second or two, ahead and back.
func (s *scene) clocks(d dice, who []int) {
	for _, v := range who {
		s.again(d, 100*time.Millisecond, 2*time.Second, func(d dice) func() {
			by := d.between(-time.Second, 2*time.Second)
			return func() { s.nodes[v].jump(by) }
		})
	}
}

// wallClocks lets the wall clocks of processes jump, by up to the longest lease.
func (s *scene) wallClocks(d dice, way time.Duration) {
	for _, p := range s.processes {
		s.again(d, 200*time.Millisecond, 3*time.Second, func(d dice) func() {
			by := way * d.between(10*time.Millisecond, maxTTL)
			return func() { p.jump(by) }
		})
	}
}
