package redlock_test

import "slices"

// A symmetry says which states differ only in names. Such states have the same future up to
// renaming, so visiting one of them is enough. Nodes that forget are alike, and so are nodes that
// do not. Attempts are alike if their tokens are. The code that runs for each state uses one
// goroutine; the race detector would make it take three times as long.
type symmetry struct {
	nodes, forgetful int
	renamings        []renaming // of the attempts
	size             int        // in how many ways all can be renamed; 0: states that differ in names are different
}

// renaming gives other names to attempts, and so to tokens.
type renaming struct {
	attempt []int
	holder  [1 + maxAttempts]uint32
}

func symmetryOf(p *protocol) symmetry {
	s := symmetry{nodes: p.nodes, forgetful: p.forgetful}
	for _, order := range permutations(len(p.attempts)) {
		r, ok := renaming{attempt: order}, true
		for a, to := range order {
			r.holder[p.token(a)] = uint32(p.token(order[p.token(a)-1]))
			ok = ok && p.token(to) == int(r.holder[p.token(a)])
		}
		if ok {
			s.renamings = append(s.renamings, r)
		}
	}
	s.size = len(s.renamings) * factorial(p.forgetful) * factorial(p.nodes-p.forgetful)
	return s
}

// canonical is the one state that stands for all that differ from s in names only, and how many these are.
//
//go:norace
func (y *symmetry) canonical(s state) (least state, orbit int) {
	if y.size == 0 {
		return s, 1
	}
	ties := 0
	for i := range y.renamings {
		t := y.renamings[i].apply(&s, y.nodes)
		t.sort(0, y.forgetful)
		t.sort(y.forgetful, y.nodes)
		switch {
		case ties == 0 || t.less(&least):
			least, ties = t, 1
		case t == least:
			ties++
		}
	}
	return least, y.size / (ties * least.alike(0, y.forgetful) * least.alike(y.forgetful, y.nodes))
}

//go:norace
func (r *renaming) apply(s *state, nodes int) (t state) {
	for n := range nodes {
		t.node[n] = s.node[n]&^3&63 | r.holder[s.node[n]&3]
		for a, to := range r.attempt {
			t.node[n] |= s.node[n] >> (6 + 6*a) & 63 << (6 + 6*to)
		}
	}
	for a, to := range r.attempt {
		t.attempt[to] = s.attempt[a]
	}
	return t
}

//go:norace
func (s *state) sort(from, to int) {
	for i := from + 1; i < to; i++ {
		for j := i; j > from && s.node[j] < s.node[j-1]; j-- {
			s.node[j], s.node[j-1] = s.node[j-1], s.node[j]
		}
	}
}

//go:norace
func (s *state) less(t *state) bool {
	for n := range s.node {
		if s.node[n] != t.node[n] {
			return s.node[n] < t.node[n]
		}
	}
	for a := range s.attempt {
		if s.attempt[a] != t.attempt[a] {
			return s.attempt[a] < t.attempt[a]
		}
	}
	return false
}

// alike is in how many orders these nodes, sorted, are the same.
func (s *state) alike(from, to int) int {
	orders, run := 1, 1
	for i := from + 1; i < to; i++ {
		if run++; s.node[i] != s.node[i-1] {
			run = 1
		}
		orders *= run
	}
	return orders
}

func factorial(n int) int {
	if n < 2 {
		return 1
	}
	return n * factorial(n-1)
}

// permutations returns those of 0 to n-1.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}
