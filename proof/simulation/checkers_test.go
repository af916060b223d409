package simulation

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/table"
)

const ms = time.Millisecond

// TestEachCheckerCanFail checks that each checker passes a correct history, and fails histories
// that differ from it in one thing.
func TestEachCheckerCanFail(t *testing.T) {
	for _, c := range []struct {
		invariant Invariant
		says      string
		spoil     func(h *History)
	}{
		{ME, "the second is granted before the first unlocks", func(h *History) { h.Holds[1].Granted = 49 * ms }},
		{ME, "the first never unlocks and does not learn of the end", func(h *History) { h.Holds[0].Unlocking = Never }},
		{ME, "the second was granted before the first died", func(h *History) {
			h.Holds[0].Unlocking = Never
			h.Deaths = []Death{{61 * ms, "c1"}}
		}},

		{OWN, "a release deletes the key of another", func(h *History) {
			h.States[1].Before = "c2w1#1"
		}},
		{OWN, "an extension prolongs the key of another", func(h *History) {
			h.States[1] = &State{At: 50 * ms, Node: 1, Key: "a", Op: "ExpireIf", Token: "c1w1#1", Before: "c2w1#1", Was: true, Until: 70 * ms, After: "c2w1#1", Is: true, Ends: 90 * ms}
		}},
		{OWN, "an extension of a key that is free is done", func(h *History) {
			h.States[1].Op, h.States[1].Was, h.States[1].Before = "ExpireIf", false, ""
		}},
		{OWN, "the release is sent while an extension is under way", func(h *History) {
			h.Extensions[0].Answered = 51 * ms
		}},
		{OWN, "an extension is sent after the release", func(h *History) {
			h.Extensions[0].Began, h.Extensions[0].Answered = 500*ms, 501*ms
		}},

		{LEASE, "the key ends before the lease", func(h *History) { h.States[0].Ends = 45 * ms }},
		{LEASE, "the key was never there", func(h *History) { h.States[0].After = "other" }},
		{LEASE, "it counts from the reply", func(h *History) { h.Attempts[0].T1 = 3 * ms }},
		{LEASE, "it is longer than the ttl and the margin allow", func(h *History) { h.Attempts[0].Expires = 98 * ms }},
		{LEASE, "it had ended when it was granted", func(h *History) { h.Attempts[0].Answered = 97 * ms }},
		{LEASE, "in real time it has no monotonic reading", func(h *History) { h.RealTime = true }},

		{TRI, "granted, and the node did not say so", func(h *History) { h.Messages[0].Answered = Never }},
		{TRI, "held, and no node said so", func(h *History) { h.Attempts[1].Outcome = Held; h.Messages[1].Kind = Fails }},
		{TRI, "held, and the node granted", func(h *History) { h.Attempts[1].Outcome = Held }},

		{TRI, "held because of an attempt of the same process that has failed", func(h *History) {
			h.Attempts[0].Client, h.Attempts[0].Outcome, h.Messages[3].Kind = "c2", Unknown, Fails
			h.Attempts[1].Outcome, h.Messages[1].Kind = Held, No
			h.States[2].OK, h.States[2].Was, h.States[2].Before = false, true, "c1w1#1"
		}},

		{NOGHOST, "a token is there long after its attempt has failed", func(h *History) {
			h.Holds = h.Holds[:1]
			h.Attempts[1].Outcome = Unknown
			h.States[2].Ends = 400 * ms
		}},
		{NOGHOST, "a token is there long after its release was answered", func(h *History) {
			h.States[1].Is, h.States[1].After, h.States[1].Ends = true, "c1w1#1", 400*ms
			h.States = h.States[:2]
		}},
		{NOGHOST, "a token outlives its ttl although its node was in trouble", func(h *History) {
			h.Holds = h.Holds[:1]
			h.Attempts[1].Outcome = Unknown
			h.Messages[1].Trouble = "late request"
			h.States[2].Ends = 400 * ms
		}},
		{NOGHOST, "an attempt that was given up takes what is reserved for a newer one", func(h *History) {
			h.Attempts[1].Outcome, h.Attempts[1].Answered, h.Messages[1].Kind = Unknown, 57*ms, Fails
			h.Holds = h.Holds[:1]
			h.States[2].Waiter, h.States[2].WasFor, h.States[2].Ends = "c2~a#1", "c2~a#1", 100*ms
			h.Messages = append(h.Messages, &Message{Client: "c2", Op: "SetNXNumbered", Waiter: "c2~a#1", Key: "a", Token: "c2w1#2", Node: 1, Sent: 57 * ms})
		}},

		{LOSS, "the context ends after the lease", func(h *History) { h.Holds[0].Ended, h.Holds[0].Final = 98*ms, 97*ms }},
		{LOSS, "the context never ends", func(h *History) { h.Holds[0].Ended = Never }},
		{LOSS, "the wall clock has ended it for a second, and its context goes on", func(h *History) {
			h.Jumps = []Jump{{40 * ms, "c1", 100 * ms}}
			h.Holds[0].Unlocking, h.Holds[0].Ended, h.Holds[0].Final = Never, 1041*ms, 2000*ms
		}},
		{LOSS, "the wall clock has ended it, and Unlock does not say that it was lost", func(h *History) {
			h.Jumps = []Jump{{40 * ms, "c1", 100 * ms}}
		}},
		{LOSS, "the wall clock has ended it, and it is extended", func(h *History) {
			h.Jumps = []Jump{{20 * ms, "c1", 100 * ms}}
			h.Holds[0].UnlockSays = "lost"
		}},
		{MONO, "an extension counts that was answered after the wall clock had ended it", func(h *History) {
			h.Jumps = []Jump{{31 * ms, "c1", 100 * ms}}
		}},

		{MONO, "an extension moves the end back", func(h *History) { h.Extensions[0].After = 90 * ms }},
		{MONO, "one that failed moves the end", func(h *History) { h.Extensions[0].Done = false }},
		{MONO, "one moves the end further than its ttl allows", func(h *History) { h.Extensions[0].After = 140 * ms; h.Holds[0].Final = 140 * ms }},
		{MONO, "one is done without its quorum", func(h *History) { h.Messages[2].Kind = No }},
		{MONO, "the last Expires is one that the holder was not told", func(h *History) { h.Holds[0].Final = 200 * ms }},

		{FENCE, "the later grant has the lower number", func(h *History) { h.Attempts[1].Fence = 4 }},
		{FENCE, "two have the same number", func(h *History) { h.Attempts[1].Fence = 5 }},

		{LIVE, "something is left at the end", func(h *History) { h.Remains[0].Is = true }},
		{LIVE, "a key outlives its ttl", func(h *History) { h.States[2].Ends = 700 * ms }},
		{LIVE, "a call with WithWait ends because of an error", func(h *History) {
			h.Wants[1].Limited = []Limited{{Span: h.Wants[1].Calls[0], For: time.Second}}
		}},
		{LIVE, "a call with WithWait ends long after its limit", func(h *History) {
			h.Wants[1].Limited = []Limited{{Span: Span{55 * ms, 1200 * ms}, For: time.Second, Over: true}}
		}},
		{LIVE, "a waiter sleeps for longer than its longest pause", func(h *History) { h.Wants[1].Calls[0].From = -260 * ms }},

		{ONCE, "the second is granted before the minimum hold of the first is over", func(h *History) { h.Holds[0].Keep = 80 * ms }},
		{ONCE, "a work has failed, and its lock is not released", func(h *History) {
			h.Holds[0].Work, h.Releases[0].Sent = Failed, 54*ms
		}},

		{ALL, "it works without one of its keys", func(h *History) { h.Several[0].Keys = []string{"a", "b"} }},
		{ALL, "it works with a lock of another worker", func(h *History) { h.Several[0].Tokens = []string{"c2w1#1"} }},
		{ALL, "it works before it has the lock", func(h *History) { h.Several[0].Called = ms }},
		{ALL, "the lock is released before the work has returned", func(h *History) { h.Several[0].Returned = 51 * ms }},
		{ALL, "the lock is lost, and the ctx of the work goes on", func(h *History) {
			h.Holds[0].Lost, h.Holds[0].Ended, h.Holds[0].Unlocking = locker.LostStolen, 40*ms, Never
		}},
		{ALL, "calls wait for each other", func(h *History) { h.Fault, h.Several[0].Over = None, true }},
	} {
		h := exemplary()
		c.spoil(h)
		h.settle()
		if found := checkers[c.invariant](h); len(found) == 0 {
			t.Errorf("%s: nothing found if %s", c.invariant, c.says)
		}
	}
	for _, jumps := range [][]Jump{
		nil,
		{{20 * ms, "c1", 50 * ms}}, // the extension counts from after it
		{{40 * ms, "c1", 50 * ms}}, // it ends at 77 ms, and is unlocked before
		{{40 * ms, "c1", 100 * ms}, {40 * ms, "c1", -100 * ms}},
		{{20 * ms, "c1", -time.Hour}},
		{{20 * ms, "c2", time.Hour}},
	} {
		h := exemplary()
		h.Jumps = jumps
		h.settle()
		if found := h.Check(); len(found) > 0 {
			t.Errorf("the correct history, with %v, violates %v", jumps, found)
		}
	}
}

// exemplary returns a correct history: two holds of one key on one node, one after the other. The
// first is extended once.
func exemplary() *History {
	return &History{
		Strategy: Strategy{Name: "hand-made", Nodes: 1, Quorum: 1, Promises: table.Promises{Numbered: true, Tokens: true}},
		Wants: []*Want{
			{Client: "c1", Worker: "c1w1", Key: "a", Began: 0, Ended: 2 * ms, Calls: []Span{{0, 2 * ms}}},
			{Client: "c2", Worker: "c2w1", Key: "a", Began: 55 * ms, Ended: 60 * ms, Calls: []Span{{55 * ms, 60 * ms}}},
		},
		Attempts: []*Attempt{
			{
				Client: "c1", Worker: "c1w1", Key: "a", Token: "c1w1#1", Waits: true, TTL: 100 * ms, Answered: 2 * ms,
				Outcome: Granted, Expires: 97 * ms, Fence: 5,
			},
			{
				Client: "c2", Worker: "c2w1", Key: "a", Token: "c2w1#1", Waits: true, TTL: 100 * ms, Began: 58 * ms, Answered: 60 * ms,
				Outcome: Granted, T1: 58 * ms, Expires: 155 * ms, Fence: 6,
			},
		},
		Holds: []*Hold{
			{
				Client: "c1", Worker: "c1w1", Key: "a", Token: "c1w1#1", TTL: 100 * ms, Granted: 2 * ms, Expires: 97 * ms,
				Unlocking: 50 * ms, Unlocked: 53 * ms, UnlockSays: "done", Ended: 50 * ms, Final: 127 * ms, Abandoned: Never,
				Keep: 50 * ms, Work: Done,
			},
			{
				Client: "c2", Worker: "c2w1", Key: "a", Token: "c2w1#1", TTL: 100 * ms, T1: 58 * ms, Granted: 60 * ms, Expires: 155 * ms,
				Unlocking: Never, Unlocked: Never, Ended: 155 * ms, Final: 155 * ms, Lost: locker.LostExpired, Abandoned: 61 * ms,
			},
		},
		Several: []*Several{{
			Client: "c1", Worker: "c1w1", Keys: []string{"a", "a"}, Ended: 53 * ms,
			Called: 3 * ms, Returned: 49 * ms, CtxEnded: 50 * ms, Tokens: []string{"c1w1#1"},
		}},
		Extensions: []*Extension{{
			Token: "c1w1#1", TTL: 100 * ms, Began: 30 * ms, Answered: 32 * ms, Before: 97 * ms, After: 127 * ms, Done: true,
		}},
		Releases: []*Release{{Token: "c1w1#1", Sent: 50 * ms, Answered: 53 * ms}},
		Messages: []*Message{
			{Client: "c1", Worker: "c1w1", Op: "SetNXNumbered", Key: "a", Token: "c1w1#1", Node: 1, TTL: 100 * ms, Answered: 2 * ms, Arrived: []time.Duration{ms}, Kind: Yes, Fence: 5},
			{Client: "c2", Worker: "c2w1", Op: "SetNXNumbered", Key: "a", Token: "c2w1#1", Node: 1, TTL: 100 * ms, Sent: 58 * ms, Answered: 60 * ms, Arrived: []time.Duration{59 * ms}, Kind: Yes, Fence: 6},
			{Client: "c1", Worker: "c1w1", Op: "ExpireIf", Key: "a", Token: "c1w1#1", Node: 1, TTL: 100 * ms, Sent: 30 * ms, Answered: 32 * ms, Arrived: []time.Duration{31 * ms}, Kind: Yes},
			{Client: "c1", Worker: "c1w1", Op: "DeleteIf", Key: "a", Token: "c1w1#1", Node: 1, Sent: 50 * ms, Answered: 53 * ms, Arrived: []time.Duration{52 * ms}, Kind: Yes},
		},
		States: []*State{
			{At: ms, Node: 1, Key: "a", Op: "SetNXNumbered", Token: "c1w1#1", TTL: 100 * ms, OK: true, After: "c1w1#1", Is: true, Ends: 131 * ms},
			{At: 52 * ms, Node: 1, Key: "a", Op: "DeleteIf", Token: "c1w1#1", OK: true, Before: "c1w1#1", Was: true, Until: 131 * ms},
			{At: 59 * ms, Node: 1, Key: "a", Op: "SetNXNumbered", Token: "c2w1#1", TTL: 100 * ms, OK: true, After: "c2w1#1", Is: true, Ends: 159 * ms},
		},
		Remains: []*State{{At: 30 * time.Second, Node: 1, Key: "a"}},
		End:     30 * time.Second,
	}
}

// TestEachCheckerCanFailForQuorumsAndNests is about the rules for several nodes and for nested
// holds.
func TestEachCheckerCanFailForQuorumsAndNests(t *testing.T) {
	t.Run("LEASE counts nodes, and those that grant nothing", func(t *testing.T) {
		h := &History{
			Strategy: Strategy{Nodes: 3, Quorum: 2, Promises: table.Promises{Tokens: true}},
			Wants:    []*Want{{Key: "a"}},
			Holds: []*Hold{{
				Key: "a", Token: "x", Expires: 97 * ms, Unlocking: Never, Ended: 97 * ms, Final: 97 * ms,
			}},
			States: []*State{
				{Node: 1, Key: "a", After: "x", Is: true, Ends: 100 * ms},
				{Node: 2, Key: "a", After: "x", Is: true, Ends: 100 * ms},
				{At: 50 * ms, Node: 2, Key: "a", Op: "forgets", Blocked: 50 * ms, BlockedUntil: 100 * ms},
			},
		}
		if found := checkLease(h); found != nil {
			t.Error(found)
		}
		h.States[2].BlockedUntil = 80 * ms
		if checkLease(h) == nil {
			t.Error("nothing found if one node of two has forgotten and grants again")
		}
	})
	t.Run("TRI counts votes", func(t *testing.T) {
		m := func(node int, said Reply) *Message {
			return &Message{Op: "SetNX", Token: "x", Node: node, Answered: ms, Kind: said}
		}
		h := &History{
			Strategy: Strategy{Nodes: 3, Quorum: 2},
			Attempts: []*Attempt{{Token: "x", TTL: time.Second, Answered: 2 * ms, Outcome: Held}},
			Messages: []*Message{m(1, No), m(2, Fails), m(3, Yes)},
		}
		if found := checkOutcomes(h); found != nil {
			t.Error("one says held, one fails:", found)
		}
		h.Messages[2].Kind = Fails
		if checkOutcomes(h) == nil {
			t.Error("nothing found if two of three have failed")
		}
		h.Messages[2].Kind, h.Messages[1].Kind = Yes, Yes
		if checkOutcomes(h) == nil {
			t.Error("nothing found if a quorum had granted it")
		}
	})
	t.Run("MONO counts nodes", func(t *testing.T) {
		m := func(node int) *Message {
			return &Message{Op: "ExpireIf", Token: "x", Node: node, Sent: ms, Answered: 2 * ms, Kind: Yes}
		}
		h := &History{
			Strategy:   Strategy{Nodes: 3, Quorum: 2},
			Extensions: []*Extension{{Token: "x", TTL: time.Second, Began: ms, Answered: 2 * ms, After: 900 * ms, Done: true}},
			Messages:   []*Message{m(1), m(2)},
		}
		if found := checkExtensions(h); found != nil {
			t.Error(found)
		}
		h.Messages[1].Node = 1
		if checkExtensions(h) == nil {
			t.Error("nothing found if one node has extended twice")
		}
	})
	t.Run("NOGHOST looks into nests", func(t *testing.T) {
		h := &History{
			Strategy: Strategy{Nodes: 1, Quorum: 1, Promises: table.Promises{Tokens: true, Shared: true, Nested: true}},
			Wants:    []*Want{{Key: "a"}},
			States: []*State{
				{At: 1 * ms, Node: 1, Key: "a", Op: "Enter", Token: "x", TTL: time.Second, OK: true, Is: true},
				{At: 2 * ms, Node: 1, Key: "a", Op: "Enter", Token: "y", TTL: time.Second, OK: true, Is: true},
				{At: 3 * ms, Node: 1, Key: "a", Op: "Leave", Token: "x", OK: true, Is: true},
				{At: 4 * ms, Node: 1, Key: "a", Op: "Leave", Token: "y", OK: true},
			},
		}
		if found := checkGhosts(h); found != nil {
			t.Error(found)
		}
		h.States[3].Is = true
		if checkGhosts(h) == nil {
			t.Error("nothing found if the key is still there when the last hold has left")
		}
	})
	t.Run("ME lets an owner have several holds", func(t *testing.T) {
		hold := func(token, owner string, from, to time.Duration) *Hold {
			return &Hold{Key: "a", Token: token, Owner: owner, Granted: from, Expires: to, Unlocking: Never, Ended: to}
		}
		h := &History{Strategy: Strategy{Promises: table.Promises{Nested: true}}, Holds: []*Hold{
			hold("1", "o", 0, 50*ms), hold("2", "o", 10*ms, 70*ms), hold("3", "p", 70*ms, 90*ms),
		}}
		if found := checkExclusion(h); found != nil {
			t.Error(found)
		}
		h.Holds[2].Granted = 69 * ms
		if checkExclusion(h) == nil {
			t.Error("nothing found if another owner comes before the last of them has ended")
		}
		h.Holds = []*Hold{hold("1", "", 0, 50*ms), hold("2", "", 10*ms, 70*ms)}
		if checkExclusion(h) == nil {
			t.Error("nothing found if two without an owner hold at once: no owner is not an owner")
		}
	})
}

func TestUnavailableIsWhenSomebodyAskedAndNobodyHad(t *testing.T) {
	h := exemplary()
	h.Holds[1].Granted = 58 * ms
	h.settle()
	// since the second asked
	if key, got := h.Unavailable(); key != "a" || (got != Span{55 * ms, 58 * ms}) {
		t.Errorf("%q, %v", key, got)
	}
}

// What a process has sent before it was killed may take effect later.
func TestUnavailableBeginsAnewWhenACallOfTheDeadTakesEffect(t *testing.T) {
	extends := State{At: 70 * ms, Node: 1, Key: "a", Op: "ExpireIf", Token: "c1w1#1", OK: true}
	for name, c := range map[string]struct {
		change func(s *State)
		from   time.Duration
	}{
		"an extension":            {func(*State) {}, 70*ms + 1},
		"one before the death":    {func(s *State) { s.At = 54 * ms }, 55 * ms},
		"one without effect":      {func(s *State) { s.OK = false }, 55 * ms},
		"one of the living":       {func(s *State) { s.Token = "c2w1#1" }, 55 * ms},
		"a take":                  {func(s *State) { s.Op, s.Token = "Enter", "c1w2#1" }, 70*ms + 1},
		"a take of the living":    {func(s *State) { s.Op, s.Token = "Enter", "c2w2#1" }, 55 * ms},
		"one of another key":      {func(s *State) { s.Key = "b" }, 55 * ms},
		"a release of the holder": {func(s *State) { s.Op = "DeleteIf" }, 55 * ms},
	} {
		h := exemplary()
		h.Holds[0].Unlocking, h.Holds[1].Granted = Never, 90*ms
		h.Deaths = []Death{{55 * ms, "c1"}}
		h.Wants[1].Began, h.Wants[1].Ended = 55*ms, 90*ms
		late := extends
		c.change(&late)
		h.States = append(h.States, &late)
		h.settle()
		if key, got := h.Unavailable(); key != "a" || (got != Span{c.from, 90 * ms}) {
			t.Errorf("%s: %q, %v; want from %v to 90ms", name, key, got, c.from)
		}
	}
}
