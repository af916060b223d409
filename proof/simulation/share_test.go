package simulation

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/table"
)

// TestEachCheckerCanFailForShares is about the rules for holds that share a key.
func TestEachCheckerCanFailForShares(t *testing.T) {
	for _, i := range []Invariant{SEM, RW, RWFENCE, RWORDER, SEMLIVE, SLOT} {
		for _, h := range []*History{reading(), permitted()} {
			if found := checkers[i](h); len(found) > 0 {
				t.Errorf("the correct history of %s violates %s: %v", h.Strategy.Name, i, found)
			}
		}
	}
	for _, c := range []struct {
		invariant Invariant
		says      string
		of        func() *History
		spoil     func(h *History)
	}{
		{SEM, "the node has three of two permits", permitted, func(h *History) { h.States[2].OK = true }},
		{SEM, "three holders believe that they have one of two permits", permitted, func(h *History) { h.Holds[2].Granted = 5 * ms }},
		{RW, "a reader is let in beside a writer", reading, func(h *History) { h.States[1].OK = true }},
		{RW, "a writer believes that it has the key beside a reader", reading, func(h *History) { h.Holds[0].Unlocking = 14 * ms }},
		{RWFENCE, "a reader has the number of the writer before", reading, func(h *History) { h.Attempts[1].Fence = 1 }},
		{RWFENCE, "two readers that read together have two numbers", reading, func(h *History) { h.Attempts[2].Fence = 3 }},
		{RWORDER, "one of two readers is woken", reading, func(h *History) { h.Wakes = h.Wakes[:1] }},
		{RWORDER, "the writer is woken with the readers", reading, func(h *History) {
			h.Wakes = append(h.Wakes, &Wake{Node: 1, Key: "a", Waiter: "c3~a#1", Sent: 10 * ms})
		}},
		{RWORDER, "a writer enters although the key is reserved for readers", reading, func(h *History) { h.States[5].Group, h.States[5].Limit = "write", 1 }},
		{RWORDER, "a reader passes a writer that waits", reading, func(h *History) { h.States[6].Waiter = "c4~a#1" }},
		{RWORDER, "a reader joins without a turn of its line", reading, func(h *History) { h.States[6].InOrder, h.States[6].Joins = false, true }},
		{SEMLIVE, "a permit is refused beside one", permitted, func(h *History) { h.States[1].OK = false }},
		{SEMLIVE, "a reader is refused, although room is reserved for it", reading, func(h *History) { h.States[5].OK = false }},
		{SEMLIVE, "a permit is refused beside one that has ended", permitted, func(h *History) { h.States[2].At = 1100 * ms }},
		{SLOT, "two permits have one slot", permitted, func(h *History) { h.Holds[1].Slot = h.Holds[0].Slot }},
		{SLOT, "a permit has a slot that there is not", permitted, func(h *History) { h.Holds[1].Slot = 2 }},
	} {
		h := c.of()
		c.spoil(h)
		if len(checkers[c.invariant](h)) == 0 {
			t.Errorf("%s: nothing found if %s", c.invariant, c.says)
		}
	}
}

func entered(at time.Duration, token, waiter, group string, limit int, ok bool) *State {
	return &State{At: at, Node: 1, Key: "a", Op: "Enter", Token: token, Waiter: waiter, TTL: time.Second, Group: group, Limit: limit, OK: ok, Is: true}
}

// permitted is a correct history of a semaphore of two permits.
func permitted() *History {
	h := &History{
		Strategy: Strategy{Name: "two permits", Nodes: 1, Quorum: 1, Permits: 2, Promises: table.Promises{Tokens: true, Shared: true}},
		States: []*State{
			entered(0, "c1w1#1", "", "", 2, true),
			entered(ms, "c2w1#1", "", "", 2, true),
			entered(2*ms, "c3w1#1", "", "", 2, false),
			{At: 10 * ms, Node: 1, Key: "a", Op: "Leave", Token: "c1w1#1", OK: true, Is: true},
			entered(11*ms, "c3w1#2", "", "", 2, true),
		},
		Wants: []*Want{{Key: "a"}},
		Slots: true,
	}
	for i, token := range []string{"c1w1#1", "c2w1#1", "c3w1#2"} {
		from := []time.Duration{ms, 2 * ms, 12 * ms}[i]
		unlocking := []time.Duration{9 * ms, Never, Never}[i]
		h.Holds = append(h.Holds, &Hold{Client: token[:2], Worker: token[:4], Key: "a", Token: token, Granted: from, Expires: from + 900*ms, Unlocking: unlocking, Ended: from + 900*ms, Slot: i % 2})
	}
	return h
}

// reading is a correct history of a writer, two readers that wait for it, and a writer that waits
// for them.
func reading() *History {
	h := &History{Strategy: Strategy{Name: "readers", Nodes: 1, Quorum: 1, Promises: table.Promises{Tokens: true, Shared: true, RW: true, Numbered: true}}, Wants: []*Want{{Key: "a"}}}
	for !writes(h.Seed, "c3") { // so that c3 writes, and c6 too
		h.Seed++
	}
	waits := func(at time.Duration, client, group string, limit, position int) *State {
		s := entered(at, client+"w1#1", client+"~a#1", group, limit, false)
		s.InOrder, s.Position = true, position
		return s
	}
	h.States = []*State{
		entered(0, "c6w1#1", "", "write", 1, true),
		waits(ms, "c1", "read", 0, 1),
		waits(2*ms, "c2", "read", 0, 2),
		waits(3*ms, "c3", "write", 1, 3),
		{At: 10 * ms, Node: 1, Key: "a", Op: "Leave", Token: "c6w1#1", OK: true, Is: true},
		entered(12*ms, "c1w1#2", "c1~a#1", "read", 0, true),
		entered(13*ms, "c2w1#2", "c2~a#1", "read", 0, true),
	}
	h.States[0].InOrder, h.States[5].InOrder, h.States[6].InOrder = true, true, true
	for _, waiter := range []string{"c1~a#1", "c2~a#1"} {
		h.Wakes = append(h.Wakes, &Wake{Node: 1, Key: "a", Waiter: waiter, Sent: 10 * ms})
	}
	for i, token := range []string{"c6w1#1", "c1w1#2", "c2w1#2"} {
		from := []time.Duration{0, 12 * ms, 13 * ms}[i]
		unlocking := []time.Duration{9 * ms, Never, Never}[i]
		fence := []uint64{1, 2, 2}[i]
		h.Attempts = append(h.Attempts, &Attempt{
			Client: token[:2], Worker: token[:4], Key: "a", Token: token, Began: from - ms, Answered: from + ms/2,
			Outcome: Granted, Fence: fence, Expires: from + 900*ms,
		})
		h.Holds = append(h.Holds, &Hold{Client: token[:2], Worker: token[:4], Key: "a", Token: token, Granted: from + ms/2, Expires: from + 900*ms, Unlocking: unlocking, Ended: from + 900*ms})
	}
	return h
}
