package redlock_test

import (
	"fmt"
	"strings"
)

// tell writes a run as lines: each move, and then the holder and the counter of each node.
func (p *protocol) tell(trace []move) string {
	var b strings.Builder
	var before state
	for i, m := range trace {
		fmt.Fprintf(&b, "%3d  %-62s", i+1, p.say(before, m.step, m.state))
		for n := range p.nodes {
			fmt.Fprintf(&b, "  %s %d", p.holderName(m.state.holder(n)), m.state.counter(n))
		}
		b.WriteByte('\n')
		before = m.state
	}
	return b.String()
}

func (p *protocol) say(before state, s step, after state) string {
	name, node := p.name(s.a), s.n+1
	switch s.do {
	case doBegin:
		return fmt.Sprintf("begin: %s asks all nodes", name)
	case doAcquire, doAcquireUnheard:
		how, heard := "takes it", ""
		if before.holder(s.n) != nobody {
			how = "has it"
		}
		if before.link(s.a, s.n) != linkAsked {
			how += " again"
		}
		if s.do == doAcquireUnheard {
			heard = ", unheard"
		}
		return fmt.Sprintf("acquire %s: node %d %s, answers %d%s", name, node, how, after.counter(s.n), heard)
	case doDecide:
		var nodes []string
		for n := range p.nodes {
			if s.first>>n&1 == 1 {
				nodes = append(nodes, fmt.Sprint(n+1))
			}
		}
		return fmt.Sprintf("decide: %s has heard nodes %s, m is %d", name, strings.Join(nodes, ", "), after.m(s.a))
	case doLate:
		return fmt.Sprintf("late: %s hears %d of node %d", name, before.link(s.a, s.n), node)
	case doRaise:
		return fmt.Sprintf("raise to %d by %s: node %d does it", after.m(s.a), name, node)
	case doGrant:
		return fmt.Sprintf("grant: %s has fence %d", name, after.m(s.a))
	case doExpire:
		return fmt.Sprintf("expire: node %d is free of %s", node, p.holderName(before.holder(s.n)))
	case doForget:
		return fmt.Sprintf("forget: node %d", node)
	}
	return "?"
}

// name returns the token of an attempt, with a prime if an earlier attempt has the same token.
func (p *protocol) name(a int) string {
	return p.attempts[a:a+1] + strings.Repeat("'", strings.Count(p.attempts[:a], p.attempts[a:a+1]))
}

func (p *protocol) holderName(holder int) string {
	if holder == nobody {
		return "-"
	}
	return p.name(holder - 1)
}
