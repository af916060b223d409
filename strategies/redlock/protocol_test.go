package redlock_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/race"
)

// The number of states includes those that differ only in names and so are not visited. A search
// that visited each of them, in a map, also counted 18,745,784.
func TestFencesOfAQuorumAreDistinctAndOrderedInAllStates(t *testing.T) {
	race.LeaveOut(t)
	for _, c := range []struct {
		says    string
		p       protocol
		states  int
		torture bool // skipped without LOCKSTEP_TORTURE=1
	}{
		{"3 attempts", protocol{nodes: 3, quorum: 2, attempts: "ABC"}, 18_745_784, false},
		{"a quorum of all", protocol{nodes: 3, quorum: 3, attempts: "ABC"}, 369_428, false},
		{"2 nodes", protocol{nodes: 2, quorum: 2, attempts: "ABC"}, 16_292, false},
		{"4 nodes", protocol{nodes: 4, quorum: 3, attempts: "AB"}, 291_620, false},
		{"4 nodes, 3 attempts", protocol{nodes: 4, quorum: 3, attempts: "ABC"}, 598_901_480, true},
		{"5 nodes", protocol{nodes: 5, quorum: 3, attempts: "AB"}, 30_560_400, false},

		{"an Acquire called again", protocol{nodes: 3, quorum: 2, attempts: "AA"}, 102_706, false},
		{"an Acquire called again beside another, 2 nodes", protocol{nodes: 2, quorum: 2, attempts: "AAB"}, 31_064, false},
		{"an Acquire called again beside another", protocol{nodes: 3, quorum: 2, attempts: "AAB"}, 54_257_196, true},
		{"acquires done twice, 2 nodes", protocol{nodes: 2, quorum: 2, attempts: "AB", repeats: true}, 96_288, false},
		{"acquires done twice, a quorum of all", protocol{nodes: 3, quorum: 3, attempts: "AB", repeats: true}, 10_303_748, true},
		{"acquires done twice", protocol{nodes: 3, quorum: 2, attempts: "AB", repeats: true}, 135_283_298, true},
		// The condition of raise on the counter is needed for acquires that arrive twice.
		{string(raiseAnyCounter), protocol{nodes: 3, quorum: 2, attempts: "AB", variant: raiseAnyCounter}, 29_912, false},

		{"2 of 3 forget, a quorum of 3", protocol{nodes: 3, quorum: 3, attempts: "AB", forgetful: 2}, 26_370, false},
		{"2 of 3 forget, a quorum of 3, 3 attempts", protocol{nodes: 3, quorum: 3, attempts: "ABC", forgetful: 2}, 13_885_894, true},
		{"1 of 4 forgets, a quorum of 3", protocol{nodes: 4, quorum: 3, attempts: "AB", forgetful: 1}, 1_006_316, false},
		{"2 of 5 forget, a quorum of 4", protocol{nodes: 5, quorum: 4, attempts: "AB", forgetful: 2}, 40_809_818, true},
	} {
		t.Run(c.says, func(t *testing.T) {
			if c.torture {
				full.Only(t) // there are so many states
			}
			x := explore(&c.p, symmetryOf(&c.p), orderedAndDistinct, unlimited)
			if x.violation != "" {
				t.Fatalf("%s:\n%s", x.violation, c.p.tell(x.trace))
			}
			if x.states != c.states {
				t.Errorf("%d states; want %d", x.states, c.states)
			}
			t.Logf("%d states, of which %d differ in more than names", x.states, x.visited)
		})
	}
}

// With -v it prints the runs. They are the shortest: all shorter runs are in order.
func TestEachVariantOfTheProtocolIsRefuted(t *testing.T) {
	race.LeaveOut(t)
	for _, c := range []struct {
		says  string
		p     protocol
		fails property
		steps int
	}{
		{"two fences are equal", protocol{nodes: 3, quorum: 2, attempts: "AB", variant: maxOfCounters}, distinct, 12},
		{"the later is not greater", protocol{nodes: 3, quorum: 2, attempts: "ABC", variant: maxOfCounters}, ordered, 14},
		{"two fences are equal", protocol{nodes: 3, quorum: 2, attempts: "AB", variant: sumOfCounters}, distinct, 12},
		{"the later is not greater", protocol{nodes: 3, quorum: 2, attempts: "ABC", variant: sumOfCounters}, ordered, 14},
		{"two fences are equal", protocol{nodes: 3, quorum: 2, attempts: "AB", variant: raiseAlways}, distinct, 14},
		{"the later is not greater", protocol{nodes: 3, quorum: 2, attempts: "ABC", variant: raiseAlways}, ordered, 21},
		{"two fences are equal", protocol{nodes: 3, quorum: 2, attempts: "AB", variant: raiseAnyToken}, distinct, 14},
		{
			"two fences are equal when an acquire is done twice",
			protocol{nodes: 3, quorum: 2, attempts: "AB", repeats: true, variant: raiseAnyCounter}, distinct, 17,
		},
		{
			"two fences are equal when an Acquire is called again",
			protocol{nodes: 3, quorum: 2, attempts: "AAB", variant: raiseAnyCounter}, distinct, 18,
		},
		{"two fences are equal", protocol{nodes: 3, quorum: 2, attempts: "AB", variant: lateCounts}, distinct, 17},

		{"1 of 3 forgets, a quorum of 2", protocol{nodes: 3, quorum: 2, attempts: "AB", forgetful: 1}, ordered, 11},
		{"3 of 3 forget, a quorum of 3", protocol{nodes: 3, quorum: 3, attempts: "AB", forgetful: 3}, ordered, 15},
		{"2 of 4 forget, a quorum of 3", protocol{nodes: 4, quorum: 3, attempts: "AB", forgetful: 2}, ordered, 14},
		{"1 of 5 forgets, a quorum of 3", protocol{nodes: 5, quorum: 3, attempts: "AB", forgetful: 1}, ordered, 13},
		{"3 of 5 forget, a quorum of 4", protocol{nodes: 5, quorum: 4, attempts: "AB", forgetful: 3}, ordered, 17},
		{"half of 4 nodes are a quorum", protocol{nodes: 4, quorum: 2, attempts: "AB"}, ordered, 10},
	} {
		t.Run(cmp.Or(string(c.p.variant), "as coded")+"/"+c.says, func(t *testing.T) {
			x := explore(&c.p, symmetryOf(&c.p), c.fails, c.steps)
			if len(x.trace) != c.steps {
				t.Errorf("%d steps; want %d (0: none was found)", len(x.trace), c.steps)
			}
			t.Logf("%s:\n%s", x.violation, c.p.tell(x.trace))
		})
	}
}

// One attempt: a node was asked and has not acquired, or it has acquired and still holds the token
// or not.
func TestTheCheckerFindsAsManyStatesAsCountedByHand(t *testing.T) {
	for _, c := range []struct {
		says   string
		p      protocol
		states int
	}{
		// idle; asked; answered, decided, granted: each held or not
		{"1 node", protocol{nodes: 1, quorum: 1, attempts: "A"}, 1 + 1 + 2 + 2 + 2},
		// idle; each node asked, or answered and held or not; decided or granted, with both landed and each held or not
		{"2 nodes", protocol{nodes: 2, quorum: 2, attempts: "A"}, 1 + 3*3 + 2*(2*2)},
		// the same, but decided or granted either with 2 of 3 landed and the other as before, or with all landed
		{"3 nodes", protocol{nodes: 3, quorum: 2, attempts: "A"}, 1 + 3*3*3 + 2*(3*(2*2)*3+2*2*2)},
	} {
		if x := explore(&c.p, symmetryOf(&c.p), orderedAndDistinct, unlimited); x.states != c.states || x.violation != "" {
			t.Errorf("%s: %d states, violation %q; want %d and none", c.says, x.states, x.violation, c.states)
		}
	}

	// begin, acquire, decide, grant, twice
	halves := &protocol{nodes: 2, quorum: 1, attempts: "AB"}
	if x := explore(halves, symmetryOf(halves), ordered, unlimited); len(x.trace) != 8 {
		t.Errorf("a quorum of half the nodes fails after %d steps; want 8", len(x.trace))
	}

	// Three times begin, acquire, acquire, decide, grant. A node that is acquired again must first
	// become free, which takes 3 steps at least. If it takes no more, the nodes answer 1, 1, 1, 2,
	// 2, 2. These are not three pairs, so one node is raised.
	three := &protocol{nodes: 3, quorum: 2, attempts: "ABC"}
	allGranted := func(p *protocol, s state) string {
		for a := range len(p.attempts) {
			if s.phase(a) != isGranted {
				return ""
			}
		}
		return "all are granted"
	}
	if x := explore(three, symmetryOf(three), allGranted, 3*5+4); len(x.trace) != 3*5+4 {
		t.Errorf("three grants take %d steps; want %d", len(x.trace), 3*5+4)
	}
}

func TestSymmetryHidesNoStateAndNoViolation(t *testing.T) {
	race.LeaveOut(t)
	for _, c := range []struct {
		says string
		p    protocol
	}{
		{"2 attempts", protocol{nodes: 3, quorum: 2, attempts: "AB"}},
		{"3 attempts", protocol{nodes: 2, quorum: 2, attempts: "ABC"}},
		{"2 of 3 attempts with one token", protocol{nodes: 2, quorum: 2, attempts: "AAB"}},
		{"acquires done twice", protocol{nodes: 2, quorum: 2, attempts: "AB", repeats: true}},
		{"2 of 3 nodes forget", protocol{nodes: 3, quorum: 3, attempts: "AB", forgetful: 2}},
		{"a violation", protocol{nodes: 3, quorum: 2, attempts: "ABC", variant: maxOfCounters}},
		{"a violation by one that forgets", protocol{nodes: 4, quorum: 3, attempts: "AB", forgetful: 2}},
	} {
		t.Run(c.says, func(t *testing.T) {
			whole, some := explore(&c.p, symmetry{}, ordered, unlimited), explore(&c.p, symmetryOf(&c.p), ordered, unlimited)
			if len(whole.trace) != len(some.trace) {
				t.Errorf("the violation takes %d steps; want %d", len(some.trace), len(whole.trace))
			}
			if whole.violation == "" && some.states != whole.states {
				t.Errorf("%d states; want %d", some.states, whole.states)
			}
			if some.visited >= whole.visited {
				t.Errorf("visited %d; that saves nothing of %d", some.visited, whole.visited)
			}
		})
	}
}

// The search renames states. Its trace must still be a sequence of possible moves that ends in a
// violation.
func TestACounterexampleIsASequenceOfPossibleMoves(t *testing.T) {
	p := &protocol{nodes: 3, quorum: 2, attempts: "AAB", variant: raiseAnyCounter}
	x := explore(p, symmetryOf(p), distinct, unlimited)
	var here state
	for i, m := range x.trace {
		if !slices.Contains(p.moves(here, nil), m) {
			t.Fatalf("step %d is not a possible move:\n%s", i+1, p.tell(x.trace))
		}
		here = m.state
	}
	if distinct(p, here) == "" || x.violation != distinct(p, here) {
		t.Errorf("the run ends with %q, the search says %q:\n%s", distinct(p, here), x.violation, p.tell(x.trace))
	}
}
