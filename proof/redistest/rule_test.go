package redistest

import (
	"testing"
	"time"
)

func hasFired(a *ActiveRule) bool {
	select {
	case <-a.Fired():
		return true
	default:
		return false
	}
}

func awaitFired(t *testing.T, a *ActiveRule) {
	t.Helper()
	await(t, a.Fault.String()+" has fired", func() bool { return hasFired(a) })
}

func TestLoseRequest(t *testing.T) {
	s, p := startBehindProxy(t)
	lost := p.Add(Rule{Fault: LoseRequest, Commands: []string{"SET"}, Times: 2})
	c, c2 := dial(t, p.Addr()), dial(t, p.Addr())
	c2.send("SET", "k", "v")
	c.send("ECHO", "before")
	c.send("SET", "k", "v")
	c.send("INCR", "n")
	c.wantReply("before")
	awaitFired(t, lost)
	await(t, "the later request is executed", func() bool { v, _ := s.Do("GET", "n"); return v == "1" })
	c.hearNothing(quiet)
	want(t, s, nil, "GET", "k")
	s.Kill()
	c.hearNothing(quiet) // not even that the server is gone
	c2.hearNothing(quiet)
	s.Restart()
	dial(t, p.Addr()).ask("OK", "SET", "k", "v")
}

func TestCutRequest(t *testing.T) {
	s, p := startBehindProxy(t)
	cut := p.Add(Rule{Fault: CutRequest, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	c.ask(nil, "GET", "k")
	c.send("SET", "k", "v")
	c.wantReset()
	awaitFired(t, cut)
	want(t, s, nil, "GET", "k")
	dial(t, p.Addr()).ask("OK", "SET", "k", "v")
}

func TestLoseReply(t *testing.T) {
	s, p := startBehindProxy(t)
	lost := p.Add(Rule{Fault: LoseReply, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	c.send("ECHO", "before")
	c.send("SET", "k", "v")
	c.wantReply("before")
	awaitFired(t, lost)
	want(t, s, "v", "GET", "k")
	c.send("INCR", "n")
	await(t, "the later request is executed", func() bool { v, _ := s.Do("GET", "n"); return v == "1" })
	c.hearNothing(quiet)
	s.Kill()
	c.hearNothing(quiet)
}

func TestCutReply(t *testing.T) {
	s, p := startBehindProxy(t)
	cut := p.Add(Rule{Fault: CutReply, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	c.send("SET", "k", "v")
	c.wantReset()
	want(t, s, "v", "GET", "k")
	awaitFired(t, cut)
}

// The server pauses, so that a reply fault that fires too early shows.
func TestReplyFaultsFireAfterTheExecution(t *testing.T) {
	for _, rule := range []Rule{{Fault: LoseReply}, {Fault: CutReply}, {Fault: DelayReply, Delay: time.Hour}} {
		t.Run(rule.Fault.String(), func(t *testing.T) {
			s, p := startBehindProxy(t)
			a := p.Add(rule)
			c := dial(t, p.Addr())
			s.Pause()
			c.send("SET", "k", "v")
			c.hearNothing(quiet)
			if hasFired(a) {
				t.Error("fired before the server had answered")
			}
			s.Resume()
			awaitFired(t, a)
			want(t, s, "v", "GET", "k")
		})
	}
}

func TestDelayRequest(t *testing.T) {
	s, p := startBehindProxy(t)
	const d = 50 * time.Millisecond
	held := p.Add(Rule{Fault: DelayRequest, Delay: d, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	begin := time.Now()
	c.send("SET", "k", "v")
	c.send("GET", "k")
	awaitFired(t, held)
	if v, _ := s.Do("GET", "k"); v != nil && time.Since(begin) < d {
		t.Error("executed before the delay was over")
	}
	c.wantReply("OK")
	if took := time.Since(begin); took < d {
		t.Errorf("answered after %v", took)
	}
	c.wantReply("v")
}

// It is the late SET that arrives after its client's cleanup.
func TestDelayedRequestLandsAlthoughTheClientLeft(t *testing.T) {
	s, p := startBehindProxy(t)
	held := p.Add(Rule{Fault: DelayRequest, Delay: 30 * time.Millisecond, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	c.send("SET", "k", "v")
	awaitFired(t, held)
	c.Close()
	await(t, "the SET lands", func() bool { v, _ := s.Do("GET", "k"); return v == "v" })
}

func TestDelayReply(t *testing.T) {
	s, p := startBehindProxy(t)
	const d = 50 * time.Millisecond
	held := p.Add(Rule{Fault: DelayReply, Delay: d, Commands: []string{"SET"}})
	c := dial(t, p.Addr())
	begin := time.Now()
	c.send("SET", "k", "v")
	c.send("GET", "k")
	awaitFired(t, held)
	want(t, s, "v", "GET", "k")
	c.wantReply("OK")
	if took := time.Since(begin); took < d {
		t.Errorf("answered after %v", took)
	}
	c.wantReply("v")
}

func TestRulesChooseTheirCommands(t *testing.T) {
	s, p := startBehindProxy(t)
	second := p.Add(Rule{Fault: CutRequest, Commands: []string{"EVAL", "EVALSHA"}, Nth: 2})
	matched := p.Add(Rule{Fault: CutReply, Match: func(args []string) bool { return args[0] == "incr" && args[1] == "b" }})
	twice := p.Add(Rule{Fault: CutReply, Commands: []string{"DEL"}, Times: 2})
	always := p.Add(Rule{Fault: CutRequest, Commands: []string{"GET"}, Times: -1})

	c := dial(t, p.Addr())
	c.ask(int64(1), "EVAL", "return 1", "0")
	c.send("EVALSHA", "00", "0")
	c.wantReset()
	awaitFired(t, second)

	c = dial(t, p.Addr())
	c.ask(int64(1), "EVAL", "return 1", "0")
	c.ask(int64(1), "incr", "a")
	c.send("incr", "b")
	c.wantReset()
	awaitFired(t, matched)
	want(t, s, "1", "GET", "b")

	for range 2 {
		if hasFired(twice) {
			t.Error("a rule for two commands fired with the first")
		}
		c = dial(t, p.Addr())
		c.send("DEL", "a")
		c.wantReset()
	}
	awaitFired(t, twice)
	dial(t, p.Addr()).ask(int64(0), "DEL", "a")

	for range 3 {
		c = dial(t, p.Addr())
		c.send("GET", "b")
		c.wantReset()
		awaitFired(t, always)
	}
	always.Remove()
	dial(t, p.Addr()).ask("1", "GET", "b")
}

func TestOneCommandMeetsOneRule(t *testing.T) {
	_, p := startBehindProxy(t)
	rules := []*ActiveRule{
		p.Add(Rule{Fault: CutReply}),
		p.Add(Rule{Fault: CutRequest}),
		p.Add(Rule{Fault: CutReply, Nth: 3}),
	}
	for i, a := range rules {
		c := dial(t, p.Addr())
		c.send("PING")
		c.wantReset()
		awaitFired(t, a)
		for _, later := range rules[i+1:] {
			if hasFired(later) {
				t.Errorf("command %d met a later rule too", i+1)
			}
		}
	}
	dial(t, p.Addr()).ask("PONG", "PING")
}

func TestRulesThatMakeNoSense(t *testing.T) {
	for _, rule := range []Rule{{}, {Fault: 99}, {Fault: DelayReply}, {Fault: CutReply, Delay: 1}, {Fault: DelayRequest, Delay: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was accepted", rule)
				}
			}()
			(&Proxy{}).Add(rule)
		}()
	}
}

// Neither version may mistake pushes and confirmations for replies.
func TestPubSub(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("RESP"+version, func(t *testing.T) {
			s, p := startBehindProxy(t)
			c := dial(t, p.Addr())
			c.send("HELLO", version)
			if _, err := c.receive(time.Second); err != nil {
				t.Fatal(err)
			}
			pong := any("PONG")
			if version == "2" {
				pong = []any{"pong", ""}
			}
			c.send("SUBSCRIBE", "a", "b")
			c.send("PING")
			c.wantReply([]any{"subscribe", "a", int64(1)})
			c.wantReply([]any{"subscribe", "b", int64(2)})
			c.wantReply(pong)
			want(t, s, int64(1), "PUBLISH", "a", "one")
			c.wantReply([]any{"message", "a", "one"})
			c.ask(Error("ERR wrong number of arguments for 'subscribe' command"), "SUBSCRIBE")

			// Three confirmations come for the first request while the second one also waits.
			lost := p.Add(Rule{Fault: LoseReply, Commands: []string{"PING"}})
			s.Pause()
			c.send("UNSUBSCRIBE", "b", "c", "d")
			c.send("PING")
			await(t, "both have arrived", func() bool { return p.Count("PING") == 2 })
			s.Resume()
			for _, channel := range []string{"b", "c", "d"} {
				c.wantReply([]any{"unsubscribe", channel, int64(1)})
			}
			awaitFired(t, lost)
			want(t, s, int64(1), "PUBLISH", "a", "two")
			c.hearNothing(quiet)
		})
	}
}

func TestFaultsOfSubscriptions(t *testing.T) {
	s, p := startBehindProxy(t)
	lost := p.Add(Rule{Fault: LoseReply, Commands: []string{"SUBSCRIBE"}})
	c := dial(t, p.Addr())
	c.send("SUBSCRIBE", "a")
	awaitFired(t, lost)
	want(t, s, int64(1), "PUBLISH", "a", "x")
	c.hearNothing(quiet)

	c = dial(t, p.Addr())
	c.ask([]any{"subscribe", "a", int64(1)}, "SUBSCRIBE", "a")
	p.BlackHole(true)
	want(t, s, int64(2), "PUBLISH", "a", "y")
	c.hearNothing(quiet)
	p.BlackHole(false)
	c.wantReply([]any{"message", "a", "y"})
	p.CutAll()
	c.wantReset()
}
