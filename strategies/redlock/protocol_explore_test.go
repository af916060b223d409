package redlock_test

import (
	"math"
	"slices"
)

// unlimited is more steps than the distance of any state.
const unlimited = math.MaxInt

// explored is the result of a search.
type explored struct {
	states    int    // number of states that can be reached
	visited   int    // of these, one for each set of states that differ only in the names of nodes and attempts
	violation string // the nearest one, or none; the search has ended there
	trace     []move // one of the shortest ways to it
}

// explore visits the states of p in the order of their distance from the beginning. It ends at the
// first state that violates holds, or after all states that are fewer than steps away.
func explore(p *protocol, s symmetry, holds property, steps int) explored {
	var (
		x      explored
		found  = newStateSet()
		parent = []uint32{0}
		moves  []move
		beyond = 1 // the first state that is a step further away
	)
	found.add(state{})
	for i := 0; i < len(found.list); i++ {
		if i == beyond {
			if steps--; steps == 0 {
				return x
			}
			beyond = len(found.list)
		}
		here, orbit := s.canonical(found.list[i])
		x.visited++
		x.states += orbit
		moves = p.moves(here, moves[:0])
		for _, m := range moves {
			there, _ := s.canonical(m.state)
			if !found.add(there) {
				continue
			}
			parent = append(parent, uint32(i))
			if m.step.do == doGrant && holds(p, there) != "" {
				x.trace = retrace(p, s, found.list, parent)
				x.violation = holds(p, x.trace[len(x.trace)-1].state)
				return x
			}
		}
	}
	return x
}

// retrace walks from the beginning to the last state found. The found states have other names than
// those of the walk, so each step goes to the next found state up to renaming.
func retrace(p *protocol, s symmetry, list []state, parent []uint32) []move {
	var way []state
	for i := uint32(len(list) - 1); i != 0; i = parent[i] {
		way = append(way, list[i])
	}
	var trace []move
	var here state
	for _, want := range slices.Backward(way) {
		moves := p.moves(here, nil)
		i := slices.IndexFunc(moves, func(m move) bool {
			there, _ := s.canonical(m.state)
			return there == want
		})
		if i < 0 {
			panic("what has been found can't be reached: the symmetry is none")
		}
		trace, here = append(trace, moves[i]), moves[i].state
	}
	return trace
}

// stateSet is a set in order of insertion.
type stateSet struct {
	list  []state
	slots []uint32 // 1 + the place in list, where the hash says or after it
}

func newStateSet() *stateSet { return &stateSet{slots: make([]uint32, 1<<10)} }

// add reports whether s is new.
func (t *stateSet) add(s state) bool {
	i := t.slot(s)
	if t.slots[i] != 0 {
		return false
	}
	t.list = append(t.list, s)
	t.slots[i] = uint32(len(t.list))
	if 2*len(t.list) > len(t.slots) {
		t.slots = make([]uint32, 2*len(t.slots))
		for k, s := range t.list {
			t.slots[t.slot(s)] = uint32(k + 1)
		}
	}
	return true
}

// slot is where s is, or would be.
//
//go:norace
func (t *stateSet) slot(s state) int {
	mask := uint64(len(t.slots) - 1)
	i := s.hash() & mask
	for t.slots[i] != 0 && t.list[t.slots[i]-1] != s {
		i = (i + 1) & mask
	}
	return int(i)
}

func (s *state) hash() uint64 {
	h := uint64(0)
	for _, w := range s.node {
		h = (h ^ uint64(w)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	for _, w := range s.attempt {
		h = (h ^ uint64(w)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return h
}
