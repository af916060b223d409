package simulation

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/table"
)

// TestEachCheckerCanFailForQueues is about the rules for queues.
func TestEachCheckerCanFailForQueues(t *testing.T) {
	for _, fault := range []Fault{None, Net} {
		h := queued(fault)
		for _, i := range []Invariant{ORDER, LIVE, TRI, OWN, ME} {
			if found := checkers[i](h); len(found) > 0 {
				t.Errorf("the correct history under %s violates %s: %v", fault, i, found)
			}
		}
	}
	for _, c := range []struct {
		invariant Invariant
		says      string
		fault     Fault
		spoil     func(h *History)
	}{
		{ORDER, "it is reserved for the second of the queue", Net, func(h *History) { h.States[3].For = "c3~a#1" }},
		{ORDER, "it is reserved for a waiter without a position", Net, func(h *History) { h.States[3].For = "c4~a#1" }},
		{ORDER, "it is reserved for a waiter whose position is used up", Net, func(h *History) { h.States[5].For = "c2~a#1" }},
		{ORDER, "a reservation is made longer", Net, func(h *History) {
			h.States[4] = &State{At: 12 * ms, Node: 1, Key: "a", Op: "SetNX", Token: "c4w1#1", Was: true, WasFor: "c2~a#1", For: "c2~a#1", Is: true, Until: 210 * ms, Ends: 212 * ms}
		}},
		{ORDER, "the second takes the reservation of the head", Net, func(h *History) { h.States[4].Waiter = "c3~a#1" }},
		{ORDER, "a caller without a position takes the reservation", Net, func(h *History) { h.States[4].Waiter = "" }},
		{ORDER, "a free lock is granted to the second", Net, func(h *History) {
			h.States[3].For, h.States[3].Is = "", false
			h.States[4].WasFor, h.States[4].Was, h.States[4].Waiter = "", false, "c3~a#1"
		}},
		{ORDER, "a waiter is told a wrong position", Net, func(h *History) { h.States[2].Position = 1 }},
		{ORDER, "a Client that came later gets the lock first", None, func(h *History) {
			h.Messages[2].Kind, h.Messages[2].Position = No, 1
			h.Wants[0].Calls[0].To = 600 * ms
		}},
		{LIVE, "nobody wakes the head", None, func(h *History) { delay(h, 10*ms) }},
		{LIVE, "nobody wakes the head, and it does not look", Net, func(h *History) { delay(h, 263*ms) }},
	} {
		h := queued(c.fault)
		c.spoil(h)
		h.settle()
		if found := checkers[c.invariant](h); len(found) == 0 {
			t.Errorf("%s: nothing found if %s", c.invariant, c.says)
		}
	}
	h := queued(Net)
	delay(h, 190*ms)
	if found := h.idlers(); found != nil {
		t.Error("a wake that was lost:", found)
	}
}

// queued returns a correct history of three Clients. The second and the third wait for the lock of
// the first; the second is the head.
func queued(f Fault) *History {
	state := func(at time.Duration, op, token, waiter string) *State {
		return &State{At: at, Node: 1, Key: "a", Op: op, Token: token, Waiter: waiter, Ends: Never}
	}
	has := func(s *State, token string, ok bool) *State {
		s.OK, s.After, s.Is, s.Ends, s.TTL = ok, token, true, time.Second, time.Second
		return s
	}
	had := func(s *State, token string) *State {
		s.Before, s.Was, s.Until = token, true, time.Second
		return s
	}
	reserved := func(s *State, waiter string) *State {
		s.OK, s.For, s.Is, s.After, s.Ends = true, waiter, true, "reserved for "+waiter, s.At+200*ms
		return s
	}
	taken := func(s *State, from *State) *State {
		s.Was, s.WasFor, s.Before, s.Until = true, from.For, from.After, from.Ends
		return s
	}
	waits := func(s *State, position int) *State {
		s.Position = position
		return has(had(s, "c1w1#1"), "c1w1#1", false)
	}
	r2 := reserved(had(state(10*ms, "DeleteIf", "c1w1#1", ""), "c1w1#1"), "c2~a#1")
	r3 := reserved(had(state(30*ms, "DeleteIf", "c2w1#2", ""), "c2w1#2"), "c3~a#1")
	message := func(client, token, waiter string, sent, answered time.Duration, kind Reply, position int) *Message {
		return &Message{
			Client: client, Worker: client + "w1", Op: "SetNXQueued", Key: "a", Token: token, Waiter: waiter, Node: 1,
			TTL: time.Second, Sent: sent, Answered: answered, Kind: kind, Position: position,
		}
	}
	h := &History{
		Strategy: Strategy{Name: "hand-made", Nodes: 1, Quorum: 1, Promises: table.Promises{Tokens: true, Queued: true, InOrder: true}},
		Fault:    f,
		States: []*State{
			has(state(0, "SetNX", "c1w1#1", ""), "c1w1#1", true),
			waits(state(2*ms, "SetNXQueued", "c2w1#1", "c2~a#1"), 1),
			waits(state(4*ms, "SetNXQueued", "c3w1#1", "c3~a#1"), 2),
			r2,
			has(taken(state(14*ms, "SetNXQueued", "c2w1#2", "c2~a#1"), r2), "c2w1#2", true),
			r3,
			has(taken(state(34*ms, "SetNXQueued", "c3w1#2", "c3~a#1"), r3), "c3w1#2", true),
		},
		Messages: []*Message{
			message("c2", "c2w1#1", "c2~a#1", 1*ms, 3*ms, No, 1),
			message("c3", "c3w1#1", "c3~a#1", 3500*time.Microsecond, 5*ms, No, 2),
			message("c2", "c2w1#2", "c2~a#1", 13*ms, 15*ms, Yes, 0),
			message("c3", "c3w1#2", "c3~a#1", 33*ms, 35*ms, Yes, 0),
			message("c1", "c1w1#1", "", -ms, ms, Yes, 0),
		},
		End: 30 * time.Second,
	}
	h.Messages[1].Sent = 3100 * time.Microsecond // after the second Client was told its position
	for _, w := range []struct {
		client string
		to     time.Duration
	}{{"c2", 15 * ms}, {"c3", 35 * ms}} {
		h.Wants = append(h.Wants, &Want{Client: w.client, Worker: w.client + "w1", Key: "a", Ended: w.to, Calls: []Span{{ms, w.to}}})
	}
	for _, m := range h.Messages {
		h.Attempts = append(h.Attempts, &Attempt{
			Client: m.Client, Worker: m.Worker, Key: "a", Token: m.Token, Waits: true, TTL: time.Second, Began: m.Sent, Answered: m.Answered,
			Outcome: map[Reply]Outcome{Yes: Granted, No: Held}[m.Kind], T1: m.Sent, Expires: m.Sent + 900*ms,
		})
	}
	return h
}

// delay delays the attempt of the third Client when it is the head.
func delay(h *History, by time.Duration) {
	h.States[6].At += by
	h.Messages[3].Sent += by
	h.Messages[3].Answered += by
	h.Attempts[3].Began += by
	h.Attempts[3].Answered += by
	h.Wants[1].Ended += by
	h.Wants[1].Calls[0].To += by
}
