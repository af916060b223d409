package simulation

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFastClockEndsLeasesEarlyAndSaysThatMoreIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{number: 1, h: &History{}, fresh: newMemory}
		n.begin()
		n.runFast(0.03)
		granted, err := n.store.SetNX(at, "a", "first", 1030*ms)
		if err != nil || !granted.OK {
			t.Fatal(granted, err)
		}
		time.Sleep(500 * ms)
		if r, err := n.store.SetNX(at, "a", "second", time.Second); r.OK || r.Left != 515*ms || err != nil {
			t.Errorf("%+v, %v; want 515ms left by its clock", r, err)
		}
		time.Sleep(500 * ms)
		if r, err := n.store.SetNX(at, "a", "second", time.Second); !r.OK || err != nil {
			t.Errorf("%+v, %v: 1.03 s have passed by its clock", r, err)
		}
		n.begin() // as a restart does
		if _, isFast := n.store.(fast); !isFast {
			t.Error("after a restart its clock no longer runs fast")
		}
	})
}

// TestWhatACutOffKeepsBack sends one message of a process to each node during each fault.
func TestWhatACutOffKeepsBack(t *testing.T) {
	for _, c := range []struct {
		name               string
		cut                func(p *process)
		arrives, isHeard   []bool // by node
		quorumIsOutOfReach bool
	}{
		{"from everything", func(p *process) { p.cutOff(2 * time.Second) }, []bool{false, false, false}, []bool{false, false, false}, true},
		{"from one node", func(p *process) { p.cutOffFrom(p.links[1], 2*time.Second) }, []bool{true, false, true}, []bool{true, false, true}, false},
		{"from two nodes", func(p *process) {
			p.cutOffFrom(p.links[1], 2*time.Second)
			p.cutOffFrom(p.links[2], 2*time.Second)
		}, []bool{true, false, false}, []bool{true, false, false}, true},
		{"it receives nothing", func(p *process) { p.cutOffOneWay(2*time.Second, false) }, []bool{true, true, true}, []bool{false, false, false}, true},
		{"it reaches nobody", func(p *process) { p.cutOffOneWay(2*time.Second, true) }, []bool{false, false, false}, []bool{false, false, false}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := StrategyNamed("redlock-3/2")
			h := Schedule{Strategy: s, Fault: None, Seed: 1}.history()
			h.began = time.Now()
			p := &process{name: "c1", h: h}
			for i := range 3 {
				n := &node{number: i + 1, h: h, fresh: newMemory}
				n.begin()
				p.links = append(p.links, &link{h: h, from: p, to: n, patience: 500 * ms})
			}
			c.cut(p)
			var arrives, isHeard []bool
			for _, l := range p.links {
				asked := time.Now()
				_, err := l.SetNX(t.Context(), "a", "token", maxTTL)
				_, _, found := l.to.store.look("a")
				arrives, isHeard = append(arrives, found), append(isHeard, err == nil)
				time.Sleep(time.Until(asked.Add(100 * ms)))
			}
			if !slices.Equal(arrives, c.arrives) || !slices.Equal(isHeard, c.isHeard) {
				t.Errorf("%s: the requests arrive: %v; the answers arrive: %v", c.name, arrives, isHeard)
			}
			if cut := len(h.cutOffs("c1")) > 0; cut != c.quorumIsOutOfReach {
				t.Errorf("%s: no quorum is within reach: %v", c.name, cut)
			}
			time.Sleep(4 * time.Second) // until the messages that were kept back have arrived
		})
	}
}

func TestAFaultBetweenAProcessAndANodeConcernsNoOthers(t *testing.T) {
	between := Stroke{Client: "c1", Node: 2}
	for _, c := range []struct {
		stroke Stroke
		client string
		node   int
		want   bool
	}{
		{between, "c1", 2, true}, {between, "c1", 1, false}, {between, "c2", 2, false},
		{Stroke{Node: 2}, "c2", 2, true}, {Stroke{Node: 2}, "c2", 1, false}, {Stroke{Client: "c1"}, "c1", 3, true},
	} {
		if c.stroke.between(c.client, c.node) != c.want {
			t.Errorf("%+v between %s and node %d: %v", c.stroke, c.client, c.node, !c.want)
		}
	}
}
