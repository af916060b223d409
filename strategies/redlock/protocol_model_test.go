package redlock_test

import (
	"fmt"
	"math/bits"
	"strings"
)

// A protocol is a model of how a quorum numbers its grants, small enough to visit all its states.
// It has some nodes and some attempts; each attempt is one Acquire with its rounds. Its steps are
// those of NewFenced:
//
//	begin    an attempt asks all nodes
//	acquire  a free node takes the token and counts: counter+1. A node that has the token already
//	         changes nothing. The answer is the counter
//	decide   the first W answers are in: m is the greatest of them. Nodes that answered m have
//	         landed; nodes that answered less are sent a raise
//	late     an answer comes after that: the same, and a node that is ahead of m does not count
//	raise    a node that has the token and is not ahead of m sets its counter to m; it has landed too
//	grant    W nodes have landed: the fence is m
//	expire   a node becomes free, and keeps its counter
//	forget   a node becomes free, and its counter falls
//
// A possible step may happen next, later, or never. So messages may come late, overtake one another
// or get lost without a step of their own. An answer that the node is held changes nothing, so it
// is left out. An attempt that fails does nothing more; its messages may still arrive. A lease may
// end at any moment, which is worse than any clock. That also stands for every release and cleanup,
// early or late.
//
// # What has to hold
//
// If one grant was answered before another was asked for, the later one has the greater fence. No
// two fences are equal. Two attempts that hold at once are no violation here, since leases end at
// any moment: fences are for exactly that case.
//
// # Why it holds
//
// A node lands an attempt at the moment when it has the token of the attempt and its counter is the
// m of the attempt. Any two quorums share a node. So if x and y are granted, one node has landed
// both; say x first. Before it lands y, the node changes hands and counts. Its counter never falls,
// so from then on it is greater than m(x), and it is m(y) when the node lands y. So fences rise in
// the order in which a shared node landed them. No two are equal. An attempt that begins after the
// grant of x lands after x. (If y is a second call of x with the same token, the node need not
// change hands. Then the fence may be the same, but not less.)
//
// A node that forgets breaks "never falls". With f such nodes, more than f nodes must be shared: 2W
// − N > f.
type protocol struct {
	nodes, quorum int
	attempts      string // the token of each as a letter; "AAB" calls the first Acquire again with its token
	repeats       bool   // a node may be asked twice, as client libraries do; the attempt gets one of the answers
	forgetful     int    // how many nodes may forget, as often as they like
	variant       variant
}

// A variant differs from the protocol in one point; "" is the protocol itself.
type variant string

const (
	maxOfCounters   variant = "the greatest counter is the fence, raises are not waited for"
	sumOfCounters   variant = "the sum of the counters is the fence"
	raiseAlways     variant = "raise asks neither for the token nor for the counter"
	raiseAnyToken   variant = "raise does not ask for the token"
	raiseAnyCounter variant = "raise does not ask for the counter"
	lateCounts      variant = "a late answer counts even if the node is ahead"
)

// landing reports whether a grant waits until W nodes have its number. Otherwise raises need never
// arrive.
func (v variant) landing() bool { return v != maxOfCounters && v != sumOfCounters }

// token returns 1 + the index of the first attempt with the same token.
func (p *protocol) token(a int) int { return 1 + strings.IndexByte(p.attempts, p.attempts[a]) }

// A move is a step and the state after it.
type move struct {
	step  step
	state state
}

type step struct {
	do    action
	a, n  int
	first uint // the nodes whose answers decide for a, as bits
}

type action byte

const (
	doBegin action = iota
	doAcquire
	doAcquireUnheard // the attempt gets the answer of the other request
	doDecide
	doLate
	doRaise
	doGrant
	doExpire
	doForget
)

// moves appends all moves that can happen next.
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
		case p.token(b) == p.token(a): // the same grant again
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

// decide uses any W of the answers, since any of them may have come first.
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

// land handles the answer of a node when m is known.
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

// A property describes what is wrong with the fences granted so far; "" means nothing.
type property func(p *protocol, s state) string

// ordered: if a grant was answered before another was asked for, the later one has the greater
// fence. A grant with the same token is the same grant again.
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
