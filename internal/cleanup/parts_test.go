package cleanup

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// state is a gate in one of its states, as calls see it.
type state struct {
	deaf, refusing bool
	window         int
}

func (g *gate) state() state { return state{g.deaf, g.refusing, g.window} }

// TestWhatAnAnswerDoesToAGate gives a gate one answer. The call was sent just before it.
func TestWhatAnAnswerDoesToAGate(t *testing.T) {
	const grant, other = true, false
	for name, c := range map[string]struct {
		oneServer  bool
		state      state
		call       bool
		err        error
		want       state
		wake       int
		isTroubled bool
	}{
		"a grant":              {call: grant},
		"a failure of a call":  {call: other, err: errDown, want: state{deaf: true}, wake: everyone, isTroubled: true},
		"a failure of a grant": {call: grant, err: errDown, want: state{refusing: true}, wake: everyone, isTroubled: true},
		"a failure of one grant of the only server":      {oneServer: true, call: grant, err: errDown, wake: everyone},
		"a permanent error of a grant":                   {call: grant, err: definite{true}, wake: everyone},
		"a permanent error of a call":                    {call: other, err: definite{true}, wake: everyone},
		"a call, while deaf":                             {state: state{deaf: true}, call: other, want: state{window: fewCalls + 1}, wake: 2, isTroubled: true},
		"a permanent error of a call, while deaf":        {state: state{deaf: true}, call: other, err: definite{true}, want: state{window: fewCalls}, wake: 1, isTroubled: true},
		"a grant, while refusing":                        {state: state{refusing: true}, call: grant, want: state{window: fewCalls + 1}, wake: 2, isTroubled: true},
		"a call, while refusing":                         {state: state{refusing: true}, call: other, want: state{refusing: true}, wake: everyone, isTroubled: true},
		"a call, while refusing on the ramp":             {state: state{refusing: true, window: 9}, call: other, want: state{refusing: true, window: 9}, wake: everyone, isTroubled: true},
		"a failure of a grant, while refusing":           {oneServer: true, state: state{refusing: true}, call: grant, err: errDown, want: state{refusing: true}, wake: everyone, isTroubled: true},
		"a grant, on the ramp":                           {state: state{window: 9}, call: grant, want: state{window: 10}, wake: 2, isTroubled: true},
		"a call, on the ramp":                            {state: state{window: 9}, call: other, want: state{window: 10}, wake: 2, isTroubled: true},
		"a failure of a grant of the server on the ramp": {oneServer: true, state: state{window: 9}, call: grant, err: errDown, want: state{window: 9}, wake: 1, isTroubled: true},
		"a call, at the end of the ramp":                 {state: state{window: fullSpeed - 1}, call: other, wake: everyone},
	} {
		g := &gate{oneServer: c.oneServer, deaf: c.state.deaf, refusing: c.state.refusing, window: c.state.window}
		g.failed.last = errDown
		g.troubled.Store(c.state != state{})
		call, _ := g.ask(c.call, true, 0, func() bool { return false })
		wake := g.answered(call, c.err)
		if g.state() != c.want || wake != c.wake || g.troubled.Load() != c.isTroubled || g.traffic.underWay() != 0 {
			t.Errorf("%s: %+v, wakes %d, troubled %v, %d calls under way; want %+v, %d, %v, none",
				name, g.state(), wake, g.troubled.Load(), g.traffic.underWay(), c.want, c.wake, c.isTroubled)
		}
	}
}

func TestAFailureDoesNotCountIfTheServerHasAnsweredSinceTheCallWasSent(t *testing.T) {
	for name, answer := range map[string]func(q *Queue){
		"a call": func(q *Queue) { c, _ := q.Ask(false, false, 9); q.Answered(c, nil) },
		"a cleanup": func(q *Queue) {
			q.Add(t.Context(), Entry{Known: true, TTL: time.Second, Remove: func(context.Context) error { return nil }})
			synctest.Wait()
		},
		"a grant": func(q *Queue) { c, _ := q.Ask(true, false, 9); q.Answered(c, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			q := New(false)
			c, _ := q.Ask(name == "a grant", false, 9)
			answer(q)
			q.Answered(c, errDown)
			if q.gate.state() != (state{}) || q.Stats().Silent {
				t.Errorf("%s: %+v", name, q.gate.state())
			}
		})
	}
}

// deafQueue is that of a server that has not answered a call for a minute, so that probes are rare.
func deafQueue(t *testing.T) *Queue {
	t.Helper()
	q := New(false)
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if c, ok := q.Ask(false, false, 9); ok {
			q.Answered(c, errDown)
		}
	}
	if st := q.Stats(); !st.Silent || st.Pending != 0 {
		t.Fatalf("%+v", st)
	}
	return q
}

func TestAnAnswerToACleanupEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := deafQueue(t)
		q.Add(t.Context(), Entry{Known: true, TTL: time.Second, Remove: func(context.Context) error { return nil }})
		synctest.Wait()
		if _, ok := q.Ask(false, false, 9); !ok || q.Stats().Silent {
			t.Errorf("let through: %v, %+v", ok, q.Stats())
		}
	})
}

// A cleanup that waits for its next call probes a server that does not answer. No other probe is let
// through then.
func TestCleanupsProbeAServerThatDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		cleanups, hang, grant bool
		want                  bool
	}{
		"no cleanup":                         {want: true},
		"one":                                {cleanups: true},
		"one, but grants alone are refused":  {cleanups: true, grant: true, want: true},
		"as many calls hang as there may be": {cleanups: true, hang: true, want: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, s := New(false), &server{err: errDial}
			if c.hang {
				s.hangs = make(chan struct{})
				defer close(s.hangs)
			}
			if c.cleanups {
				q.Add(t.Context(), Entry{Known: true, TTL: time.Hour, Remove: s.remove})
			}
			call, _ := q.Ask(c.grant, false, 9)
			q.Answered(call, errDown)
			time.Sleep(time.Minute)
			if _, ok := q.Ask(c.grant, false, 9); ok != c.want {
				t.Errorf("%s: a probe is let through: %v", name, ok)
			}
		})
	}
}

func TestPausesBeginShortAgainAfterAnAnswer(t *testing.T) {
	for _, grant := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := new(gate)
			ask := func() (Call, bool) { return g.ask(grant, false, 1000, func() bool { return false }) }
			fail := func() { c, _ := ask(); g.answered(c, errDown) }
			for fail(); g.probes.pause.length < maxPause; time.Sleep(time.Millisecond) {
				if c, ok := ask(); ok {
					g.answered(c, errDown)
				}
			}
			time.Sleep(maxPause)
			probe, _ := ask()
			g.answered(probe, nil)
			fail()
			if d := g.probes.pause.length; d != baseBackoff {
				t.Errorf("grants %v: after an answer the pause is up to %v; want %v", grant, d, baseBackoff)
			}
		})
	}
}

func TestFewFailuresOfTheOnlyServerBeginNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		for i := range fewRefusals - 1 {
			c, _ := q.Reserve(t.Context(), fmt.Sprint(i), true)
			q.Answered(c, errDown)
			q.Free()
		}
		if p := q.gate.probes.pause; p != (backoff{}) {
			t.Errorf("%+v", p)
		}
	})
}

func TestProbesOfCleanupsBeginOftenAgainAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, s := New(false), &server{err: errDial}
		add := func() { q.Add(t.Context(), Entry{Known: true, TTL: time.Hour, Remove: s.remove}) }
		add()
		time.Sleep(time.Minute)
		s.set(func() { s.err = nil })
		time.Sleep(maxPause)
		s.set(func() { s.err = errDial })
		add()
		synctest.Wait()
		if d := q.leftovers.server.pause.length; d != baseBackoff {
			t.Errorf("after an answer the pause is up to %v; want %v", d, baseBackoff)
		}
	})
}

// Calls that were under way when the server fell silent fail one after the other.
func TestFailuresDuringAPauseDoNotMakeItLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		var calls []Call
		for range 100 {
			c, _ := q.Ask(true, false, 1000)
			calls = append(calls, c)
		}
		for _, c := range calls {
			q.Answered(c, errDown)
		}
		time.Sleep(baseBackoff)
		c, ok := q.Ask(true, false, 1000)
		if !ok {
			t.Fatal("no probe is let through after the first pause")
		}
		q.Withdraw(c)
		other, _ := q.Ask(false, false, 1000)
		q.Answered(other, nil)
		if _, ok := q.Ask(true, false, 1000); !ok {
			t.Error("an answer to another call puts the probe off")
		}
	})
}

func TestManyPermanentErrorsStopTheGrantsToANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		for range fewRefusals {
			c, ok := q.Ask(true, false, 9)
			if !ok {
				t.Fatal("too early")
			}
			q.Answered(c, definite{true})
		}
		if _, ok := q.Ask(true, false, 9); ok {
			t.Error("one more is let through")
		}
	})
}

func TestASlowServerGetsNoMoreCallsThanTheLimit(t *testing.T) {
	q := New(false)
	ask := func(needed bool) bool { _, ok := q.Ask(false, needed, 9); return ok }
	for range 9 {
		if !ask(false) {
			t.Fatal("a call within the limit is not let through")
		}
	}
	for range 2 {
		if ask(false) || q.Stats().Pending != 9 {
			t.Errorf("%d calls under way; the limit is 9", q.Stats().Pending)
		}
	}
	if !ask(true) {
		t.Error("a caller that needs the server is not let through")
	}
	q.gate.window = 100 // on the ramp
	q.gate.troubled.Store(true)
	q.gate.traffic.pending.Store(9)
	if ask(false) {
		t.Error("a call beyond the limit is let through on the ramp")
	}
}

func TestAnAttemptThatIsNoLongerAProbeIsNotCountedAsOne(t *testing.T) {
	g := &gate{oneServer: true}
	c := Call{grant: true, probe: true} // admitted as a probe, found no slot, and was withdrawn
	if ok, err := g.admit(&c, true); !ok || err != nil || c.probe {
		t.Errorf("%v, %v, %+v", ok, err, c)
	}
}

func TestNoGhostIsLeftWhenAllCleanupsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		for i := range 9 {
			q.Add(t.Context(), Entry{Key: fmt.Sprint(i % 3), TTL: time.Second, Remove: func(context.Context) error { return nil }})
		}
		synctest.Wait()
		if n := q.leftovers.ghosts.count.Load(); n != 0 || len(q.leftovers.ghosts.byKey) != 0 {
			t.Errorf("%d ghosts, so each attempt that is held takes the mutex; %v", n, q.leftovers.ghosts.byKey)
		}
		time.Sleep(time.Minute)
	})
}

// A list that always has an entry, for instance of confirmations under steady load, stays small.
func TestAListThatNeverGetsEmptyStaysSmall(t *testing.T) {
	var l list
	for range 3 {
		l.push(&entry{})
	}
	for range 100_000 {
		l.push(&entry{})
		l.pop()
	}
	if n, room := len(l.entries()), cap(l.items); n != 3 || room > 32 {
		t.Errorf("a list with %d entries has room for %d; want 3 in 32 at most", n, room)
	}
}
