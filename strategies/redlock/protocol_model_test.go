package redlock_test

import (
	"fmt"
	"math/bits"
	"strings"
)

// A protocol is how a quorum numbers its grants, as a machine small enough to visit all its states: some nodes, and some
// attempts, each of which is one Acquire with its rounds. Its steps are those of NewFenced:
//
//	begin    an attempt asks all nodes
//	acquire  a node that is free takes the token, and counts: counter+1. One that has the token already changes nothing.
//	         The answer is the counter
//	decide   the first W answers are in: m is the greatest of them. Nodes that answered m have landed, to those that
//	         answered less a raise is sent
//	late     an answer comes after that: the same, and a node that is ahead of m does not count
//	raise    a node that has the token and is not ahead of m sets its counter to m; it has landed too
//	grant    W nodes have landed: the fence is m
//	expire   a node becomes free, and keeps its counter
//	forget   a node becomes free, and its counter falls
//
// What can be done may be done next, later, or never. So messages are late, overtake one another and get lost, and much
// needs no step of its own. A refusal changes nothing: that message may as well not have come. An attempt that gives up
// does no more; what it has sent may still arrive. A lease ends at any moment, which is worse than any clock, and stands
// for every release and clean-up, early or late.
//
// # What has to hold
//
// If one grant was answered before another was asked for, the later one has the greater fence; and no two fences are equal.
// That two believe to hold at once is no violation here, since leases end at any moment: fences are for just that.
//
// # Why it holds
//
// Say that a node lands an attempt at the moment when it has its token and the counter is its m. Any two quorums share a
// node, so if x and y are granted, one node has landed both, say first x. Until it lands y it changes hands, and counts. Its
// counter is never lowered, so it is over m(x) from then on, and it is m(y) when y lands. So fences rise in the order in
// which a shared node landed them: no two are equal, and who asked when x was granted already comes after x. (If y is x
// called again, with its token, the node need not change hands, and the fence may be the same, but not less.)
//
// A node that forgets breaks "never lowered". Let f nodes be such, and the shared ones be more than f: 2W − N > f.
type protocol struct {
	nodes, quorum int
	attempts      string // a letter for each, which is its token; in "AAB" the first Acquire is called again with its token
	repeats       bool   // a node may be asked twice, as client libraries do; the attempt hears one of the answers
	forgetful     int    // how many nodes may forget, as often as they like
	variant       variant
}

// A variant differs from the protocol in one thing; "" is the protocol itself.
type variant string

const (
	maxOfCounters   variant = "the greatest counter is the fence, raises are not waited for"
	sumOfCounters   variant = "the sum of the counters is the fence"
	raiseAlways     variant = "raise asks neither for the token nor for the counter"
	raiseAnyToken   variant = "raise does not ask for the token"
	raiseAnyCounter variant = "raise does not ask for the counter"
	lateCounts      variant = "a late answer counts even if the node is ahead"
)

// landing tells whether a grant waits until W nodes have its number. If it does not, raises may as well never arrive.
func (v variant) landing() bool { return v != maxOfCounters && v != sumOfCounters }

// token is 1 + the first attempt that has it.
func (p *protocol) token(a int) int { return 1 + strings.IndexByte(p.attempts, p.attempts[a]) }

// A move is a step and where it leads.
type move struct {
	step  step
	state state
}

type step struct {
	do    action
	a, n  int
	first uint // the nodes by whose answers a decides, as bits
}

type action byte

const (
	doBegin action = iota
	doAcquire
	doAcquireUnheard // the answer that is heard is another
	doDecide
	doLate
	doRaise
	doGrant
	doExpire
	doForget
)

// moves appends all that can happen next.
func (p *protocol) moves(s state, to []move) []move {
	for a := range len(p.attempts) {
		switch s.phase(a) {
		case isIdle:
			to = p.begin(s, a, to)
			continue
		case isAsking:
			to = p.decide(s, a, to)
		case isRaising:
			to = p.grant(s, a, to)
		}
		for n := range p.nodes {
			to = p.acquire(s, a, n, to)
			to = p.late(s, a, n, to)
			to = p.raise(s, a, n, to)
		}
	}
	for n := range p.nodes {
		to = p.expire(s, n, to)
		to = p.forget(s, n, to)
	}
	return to
}

func (p *protocol) begin(s state, a int, to []move) []move {
	floor := 0
	for b := range len(p.attempts) {
		switch {
		case s.phase(b) != isGranted:
		case p.token(b) == p.token(a): // the same grant, told again
			floor = max(floor, s.m(b)-1)
		default:
			floor = max(floor, s.m(b))
		}
	}
	s.setAttempt(a, isAsking, 0, floor)
	return append(to, move{step{do: doBegin, a: a}, s})
}

func (p *protocol) acquire(s state, a, n int, to []move) []move {
	first := s.link(a, n) == linkAsked
	if !first && (!p.repeats || s.twice(a, n)) {
		return to
	}
	switch s.holder(n) {
	case nobody:
		if s.counter(n) == maxCounter {
			panic("the counter of a node needs more bits")
		}
		s.setNode(n, p.token(a), s.counter(n)+1)
	case p.token(a):
	default:
		return to
	}
	if !first {
		s.setTwice(a, n)
		to = append(to, move{step{do: doAcquireUnheard, a: a, n: n}, s})
		if !s.answered(a, n) || s.link(a, n) == s.counter(n) {
			return to
		}
	}
	s.setLink(a, n, s.counter(n))
	return append(to, move{step{do: doAcquire, a: a, n: n}, s})
}

// decide is done with any W of the answers: any may have come first.
func (p *protocol) decide(s state, a int, to []move) []move {
	for first := range uint(1) << p.nodes {
		if bits.OnesCount(first) != p.quorum {
			continue
		}
		m, sum, all := 0, 0, true
		for n := range p.nodes {
			if first>>n&1 == 1 {
				m, sum, all = max(m, s.link(a, n)), sum+s.link(a, n), all && s.answered(a, n)
			}
		}
		if !all {
			continue
		}
		if p.variant == sumOfCounters {
			m = sum
		}
		next := s
		next.setAttempt(a, isRaising, m, s.floor(a))
		for n := range p.nodes {
			if first>>n&1 == 1 {
				p.land(&next, a, n)
			}
		}
		to = append(to, move{step{do: doDecide, a: a, first: first}, next})
	}
	return to
}

func (p *protocol) late(s state, a, n int, to []move) []move {
	if s.phase(a) < isRaising || !s.answered(a, n) {
		return to
	}
	p.land(&s, a, n)
	return append(to, move{step{do: doLate, a: a, n: n}, s})
}

// land looks at the answer of a node, knowing m.
func (p *protocol) land(s *state, a, n int) {
	switch answer, m := s.link(a, n), s.m(a); {
	case answer == m || answer > m && p.variant == lateCounts:
		s.setLink(a, n, linkLanded)
	case answer < m:
		s.setLink(a, n, linkSent)
	default:
		s.setLink(a, n, linkAhead)
	}
}

func (p *protocol) raise(s state, a, n int, to []move) []move {
	if s.link(a, n) != linkSent && s.link(a, n) != linkRaised || !p.variant.landing() {
		return to
	}
	anyToken := p.variant == raiseAlways || p.variant == raiseAnyToken
	anyCounter := p.variant == raiseAlways || p.variant == raiseAnyCounter
	if s.holder(n) != p.token(a) && !anyToken || s.counter(n) > s.m(a) && !anyCounter {
		return to
	}
	s.setNode(n, s.holder(n), s.m(a))
	s.setLink(a, n, linkRaised)
	return append(to, move{step{do: doRaise, a: a, n: n}, s})
}

func (p *protocol) grant(s state, a int, to []move) []move {
	quorum := 0
	for n := range p.nodes {
		if s.link(a, n) == linkLanded || s.link(a, n) == linkRaised {
			quorum++
		}
	}
	if quorum < p.quorum && p.variant.landing() {
		return to
	}
	s.setAttempt(a, isGranted, s.m(a), s.floor(a))
	return append(to, move{step{do: doGrant, a: a}, s})
}

func (p *protocol) expire(s state, n int, to []move) []move {
	if s.holder(n) == nobody {
		return to
	}
	s.setNode(n, nobody, s.counter(n))
	return append(to, move{step{do: doExpire, n: n}, s})
}

func (p *protocol) forget(s state, n int, to []move) []move {
	if n >= p.forgetful {
		return to
	}
	for lower := range s.counter(n) {
		s.setNode(n, nobody, lower)
		to = append(to, move{step{do: doForget, n: n}, s})
	}
	return to
}

// A property tells what is wrong with the fences granted so far, if anything is.
type property func(p *protocol, s state) string

// ordered: if a grant was answered before another was asked for, the later one has the greater fence. One with the same
// token is the same grant, told again.
func ordered(p *protocol, s state) string {
	for a := range len(p.attempts) {
		if s.phase(a) == isGranted && s.m(a) <= s.floor(a) {
			return fmt.Sprintf("%s has fence %d, but more than %d was due when it asked", p.name(a), s.m(a), s.floor(a))
		}
	}
	return ""
}

// distinct: no two grants have the same fence.
func distinct(p *protocol, s state) string {
	for a := range len(p.attempts) {
		for b := range a {
			if s.phase(a) == isGranted && s.phase(b) == isGranted && s.m(a) == s.m(b) && p.token(a) != p.token(b) {
				return fmt.Sprintf("%s and %s both have fence %d", p.name(b), p.name(a), s.m(a))
			}
		}
	}
	return ""
}

func orderedAndDistinct(p *protocol, s state) string {
	if wrong := ordered(p, s); wrong != "" {
		return wrong
	}
	return distinct(p, s)
}
