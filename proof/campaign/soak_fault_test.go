package campaign

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// strikeServers kills and stops servers of a group, one at a time. No two are killed in the life of
// one lease: a quorum does not tolerate that.
func (s *soak) strikeServers(until context.Context, g group, dice *rand.Rand) {
	for {
		rivals.Rest(until, leaseTTL/2+upTo(dice, 5*leaseTTL))
		if until.Err() != nil {
			return
		}
		server := g[dice.IntN(len(g))].server
		switch dice.IntN(2) {
		case 0:
			server.Kill()
			if dice.IntN(2) == 0 { // otherwise it is back at once
				rivals.Rest(until, upTo(dice, leaseTTL))
			}
			server.Restart()
			s.tally.add("server killed")
		case 1:
			server.Pause()
			rivals.Rest(until, leaseTTL+upTo(dice, leaseTTL))
			server.Resume()
			s.tally.add("server stopped")
		}
		rivals.Rest(until, leaseTTL/2)
	}
}

// strikeNetwork breaks connections, and loses or delays messages.
func (s *soak) strikeNetwork(until context.Context, dice *rand.Rand) {
	for sites := s.sites(); ; {
		rivals.Rest(until, upTo(dice, leaseTTL))
		if until.Err() != nil {
			return
		}
		site := sites[dice.IntN(len(sites))]
		switch way := dice.IntN(10); {
		case way < 1:
			site.proxy.CutAll()
			s.tally.add("connections reset")
		case way < 2:
			site.proxy.BlackHole(true)
			rivals.Rest(until, upTo(dice, 2*leaseTTL))
			site.proxy.BlackHole(false)
			s.tally.add("black hole")
		case way < 4:
			// it may be down
			if n, err := site.server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err == nil && n != int64(0) {
				s.tally.add("subscriptions killed")
			}
		default:
			s.strikeMessages(until, site.proxy, dice)
		}
	}
}

// strikeMessages loses or delays messages for a while, and then waits until none is under way.
func (s *soak) strikeMessages(until context.Context, p *redistest.Proxy, dice *rand.Rand) {
	f := faults[dice.IntN(len(faults)-1)] // all but the black hole
	rule := redistest.Rule{Fault: f.wire, Nth: 1 + dice.IntN(10), Times: 1 + dice.IntN(5)}
	if f.isLate() {
		rule.Delay = upTo(dice, 2*leaseTTL)
	}
	active := p.Add(rule)
	select {
	case <-active.Fired():
		s.tally.add(f.name)
	case <-time.After(leaseTTL): // the server is down, or nobody uses it
	case <-until.Done():
	}
	active.Remove()
	time.Sleep(rule.Delay)
}

// strikeProcesses kills processes that hold or want locks, and starts others.
func (s *soak) strikeProcesses(until context.Context, t *testing.T, staff []*office, dice *rand.Rand) {
	for {
		rivals.Rest(until, time.Second+upTo(dice, 20*time.Second))
		if until.Err() != nil {
			return
		}
		o := staff[dice.IntN(len(staff))]
		o.worker.end()
		o.hire(t)
		s.tally.add("process killed")
	}
}

// A tally counts faults, by name.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[what]++
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c.of)) {
		all = append(all, fmt.Sprintf("%s %d", what, c.of[what]))
	}
	return strings.Join(all, ", ")
}
