package laboratory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Scenario is a column of the table: a fault that can be made to happen under any strategy. It leaves
// a Record, from which the verdict is computed.
type Scenario struct {
	Name  string // of the column
	About string // what happens
	play  func(ctx context.Context, s *stage) error
	apply func(r Row) string // why there is no such thing with this strategy; empty: there is
}

var scenarios = []Scenario{
	{"crash", "the owner's process is killed with SIGKILL", crash, always},
	{"pause", "the owner's process is stopped until its lease is over and the next one has the lock, then goes on and writes", paused, always},
	{"restart", "a server restarts without its memory while the lock is held by a bare quorum", forgetful(1), always},
	{"restarts", "two servers restart without their memory while the lock is held by a bare quorum", forgetful(2), ifQuorum},
	{"loser", "of two who find the lock free at once, the loser has the shorter timeout", loser, always},
	{"clock", "a client whose clock is an hour ahead asks for a lock that is held", clockAhead, always},
	{"killed", "a process is killed with SIGKILL before the last command of its attempt", killedBetween, always},
}

func always(Row) string { return "" }

func ifQuorum(r Row) string {
	if r.servers == 1 {
		return "it has one server"
	}
	return ""
}

// SpeedColumn is the name of the measurements, which are no scenario.
const SpeedColumn = "speed"

// Columns returns the names of the columns: the measurements, and each scenario.
func Columns() []string {
	names := []string{SpeedColumn}
	for _, t := range tables {
		for _, s := range t.scenarios {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

func scenarioNamed(all []Scenario, name string) (Scenario, bool) {
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// A Cell is the outcome of a scenario under a strategy.
type Cell struct {
	Row      string
	Scenario Scenario
	Outcome  Outcome
	Detail   string
	Record   Record
}

// errNotHere is a scenario that this system, or these servers, can't play.
var errNotHere = errors.New("can't be done here")

// takes is how often a scenario is played that something else kept from happening, such as a machine that was too slow.
const takes = 5

// play plays a scenario until it has happened.
func play(ctx context.Context, p *park, r Row, servers []server, sc Scenario) Cell {
	c := Cell{Row: r.Name, Scenario: sc}
	if why := sc.apply(r); why != "" {
		c.Outcome, c.Detail = None, why
		return c
	}
	for take := range takes {
		s := &stage{row: r, take: take, servers: servers, key: fmt.Sprintf("%s%s/%s/%d", p.prefix, r.Name, sc.Name, take)}
		s.Began = time.Now()
		err := r.awake(ctx, servers)
		if err == nil {
			err = sc.play(ctx, s)
		}
		s.close()
		c.Record = s.Record
		switch {
		case err == nil:
			c.Outcome, c.Detail = s.verdict()
			return c
		case errors.Is(err, errNotHere), errors.Is(err, errNotOurs):
			c.Outcome, c.Detail = NotRun, err.Error()
			return c
		}
		c.Outcome, c.Detail = NotProduced, err.Error()
		if ctx.Err() != nil {
			return c
		}
	}
	return c
}
