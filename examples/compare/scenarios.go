package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A scenario is a column of anomalies: something that goes wrong, made to happen under any strategy. It leaves a record; what
// is to be said about that, the record itself tells.
type scenario struct {
	name  string // of the column
	about string // what happens
	play  func(ctx context.Context, s *stage) error
	apply func(r row) string // why there is no such thing with this strategy; empty: there is
}

var scenarios = []scenario{
	{"crash", "the owner's process is killed with SIGKILL", crash, always},
	{"pause", "the owner's process is stopped until its lease is over and the next one has the lock, then goes on and writes", paused, always},
	{"restart", "a server restarts without its memory while the lock is held by a bare quorum", forgetful(1), always},
	{"restarts", "two servers restart without their memory while the lock is held by a bare quorum", forgetful(2), ifQuorum},
	{"loser", "of two who find the lock free at once, the loser has the shorter timeout", loser, always},
	{"clock", "a client whose clock is an hour ahead asks for a lock that is held", clockAhead, always},
	{"killed", "a process is killed with SIGKILL before the last command of its attempt", killedBetween, always},
}

func always(row) string { return "" }

func ifQuorum(r row) string {
	if r.servers == 1 {
		return "it has one server"
	}
	return ""
}

// speedColumn is what -only takes besides the scenarios.
const speedColumn = "speed"

func columns() []string {
	names := []string{speedColumn}
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

func scenarioNamed(name string) (scenario, bool) {
	for _, s := range scenarios {
		if s.name == name {
			return s, true
		}
	}
	return scenario{}, false
}

// A cell is what came of a scenario under a strategy.
type cell struct {
	row      string
	scenario scenario
	outcome  outcome
	detail   string
	record   record
}

// errNotHere is a scenario that this system, or these servers, can't play.
var errNotHere = errors.New("can't be done here")

// takes is how often a scenario is played that something else kept from happening, such as a machine that was too slow.
const takes = 5

// play plays a scenario until it has happened.
func play(ctx context.Context, p *park, r row, servers []server, sc scenario) cell {
	c := cell{row: r.name, scenario: sc}
	if why := sc.apply(r); why != "" {
		c.outcome, c.detail = none, why
		return c
	}
	for take := range takes {
		s := &stage{row: r, take: take, servers: servers, key: fmt.Sprintf("%s%s/%s/%d", p.prefix, r.name, sc.name, take)}
		s.began = time.Now()
		err := sc.play(ctx, s)
		s.close()
		c.record = s.record
		switch {
		case err == nil:
			c.outcome, c.detail = s.verdict()
			return c
		case errors.Is(err, errNotHere), errors.Is(err, errNotOurs):
			c.outcome, c.detail = skipped, err.Error()
			return c
		}
		c.outcome, c.detail = failed, err.Error()
		if ctx.Err() != nil {
			return c
		}
	}
	return c
}
