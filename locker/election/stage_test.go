package election_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const (
	key    = "billing/leader"
	ttl    = locker.DefaultTTL
	moment = time.Second // for what waits neither for a lease nor for a pause that has grown
)

var errEnough = errors.New("enough")

// strategies give each candidate a store of its own in front of the one that all share.
var strategies = map[string]func(store *memory.Store) (locker.Locker, *backendtest.Faults){
	"fenced": overFenced,
	"fair": func(store *memory.Store) (locker.Locker, *backendtest.Faults) {
		faults := new(backendtest.Faults)
		return fair.New(faults.Queued(store)), faults
	},
	"single": func(store *memory.Store) (locker.Locker, *backendtest.Faults) {
		faults := new(backendtest.Faults)
		return single.New(faults.Queued(store)), faults
	},
}

func overFenced(store *memory.Store) (locker.Locker, *backendtest.Faults) {
	faults := new(backendtest.Faults)
	return fenced.New(faults.Numbered(store)), faults
}

// A stage is a store in memory, its candidates and the terms that they have had.
type stage struct {
	*testing.T
	over  func(store *memory.Store) (locker.Locker, *backendtest.Faults)
	store *memory.Store
	all   []*candidate

	mu    sync.Mutex
	terms []spell
}

// A spell is the time for which a lead ran.
type spell struct {
	who          string
	number       uint64
	began, ended time.Time
}

// A candidate is a Client with an Election.
type candidate struct {
	*election.Election
	*stage
	name   string
	client *locker.Client
	faults *backendtest.Faults
	clock  *wallclock.Clock
	says   chan error // what lead returns
	stop   context.CancelCauseFunc
	ended  chan struct{} // closed when Run has returned
	err    error         // of Run
}

// play runs a test in fake time over each strategy.
func play(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	for name, over := range strategies {
		t.Run(name, func(t *testing.T) { playOver(t, over, test) })
	}
}

// playFenced runs a test in fake time over one strategy, since the others would show no more.
func playFenced(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	playOver(t, overFenced, test)
}

func playOver(t *testing.T, over func(*memory.Store) (locker.Locker, *backendtest.Faults), test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, over: over, store: memory.New()}
		defer s.end()
		test(t, s)
	})
}

// end stops all candidates and looks at what they leave.
func (s *stage) end() {
	for _, c := range s.all {
		if c.stop != nil {
			c.faults.Clear()
			c.stop(nil)
			<-c.ended
		}
	}
	for _, c := range s.all {
		if err := c.client.Drain(context.Background()); err != nil {
			s.Error(err)
		}
		mustMatch(s.T, c.IsLeader(context.Background()), election.ErrNotLeader)
	}
	time.Sleep(5 * time.Second) // cleanups and watches end by themselves
	synctest.Wait()
	if value, left, ok := s.store.Get(key); ok && !s.Failed() {
		s.Errorf("the key still holds %q for %v", value, left)
	}
	numbered := false
	for i, term := range s.terms {
		numbered = numbered || term.number > 0
		if i > 0 && numbered && term.number <= s.terms[i-1].number {
			s.Errorf("term %d has number %d after %d", i, term.number, s.terms[i-1].number)
		}
	}
}

// candidate makes a candidate that does not run yet.
func (s *stage) candidate(name string, opts ...locker.ClientOption) *candidate {
	l, faults := s.over(s.store)
	c := &candidate{stage: s, name: name, faults: faults, clock: new(wallclock.Clock), says: make(chan error)}
	c.client = locker.New(clocked{l, c.clock}, opts...)
	c.Election = election.New(c.client, key)
	s.all = append(s.all, c)
	return c
}

// clocked is a Locker whose Client has a wall clock of its own.
type clocked struct {
	locker.Locker
	clock *wallclock.Clock
}

func (c clocked) WallClock() *wallclock.Clock { return c.clock }

// start makes a candidate that runs, and lets it get as far as it can.
func (s *stage) start(name string, opts ...locker.ClientOption) *candidate {
	c := s.candidate(name, opts...)
	c.run(c.lead)
	synctest.Wait()
	return c
}

type lead = func(ctx context.Context, t election.Term) error

func (c *candidate) run(do lead) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.stop, c.ended = cancel, make(chan struct{})
	go func() {
		defer close(c.ended)
		c.err = c.Run(ctx, do)
	}()
}

// lead lasts until its ctx ends, or until the test says what it returns.
func (c *candidate) lead(ctx context.Context, t election.Term) error {
	defer c.noted(t)()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-c.says:
		return err
	}
}

// returns lets lead return err.
func (c *candidate) returns(err error) {
	c.Helper()
	select {
	case c.says <- err:
	case <-time.After(time.Hour):
		c.Fatalf("%s does not lead", c.name)
	}
}

// noted notes a term, and its end when the result is called.
func (c *candidate) noted(t election.Term) (ends func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.terms)
	c.terms = append(c.terms, spell{who: c.name, number: t.Number, began: time.Now()})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.terms[i].ended = time.Now()
	}
}

// spells are the terms up to now.
func (s *stage) spells() []spell {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.terms)
}

// order is who led, one letter for each term.
func (s *stage) order() string {
	var order strings.Builder
	for _, term := range s.spells() {
		order.WriteString(term.who)
	}
	return order.String()
}

func (c *candidate) leads() bool { return c.IsLeader(context.Background()) == nil }

// within waits until something holds.
func (s *stage) within(d time.Duration, what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(d); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			order := s.order()
			s.Fatalf("not within %v: %s; the last terms are those of %q", d, what, order[max(len(order)-20, 0):])
		}
	}
}

// leaders asks all candidates, one after the other.
func (s *stage) leaders() (who []string) {
	for _, c := range s.all {
		if c.leads() {
			who = append(who, c.name)
		}
	}
	return who
}

// guard looks all the time for two that lead, until the result is called. All candidates are there.
func (s *stage) guard() (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			// One may resign between two looks, so each of them must lead before and after the other.
			if len(s.leaders()) > 1 {
				if who := s.leaders(); len(who) > 1 {
					s.Errorf("%v lead at once", who)
					return
				}
			}
		}
	}()
	return sync.OnceFunc(func() { close(done); <-over })
}

// times counts calls of a lead.
type times struct{ n atomic.Int32 }

func (n *times) more() int { return int(n.n.Add(1)) }

func mustMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
}

func mustNotMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("%v matches %v", err, target)
		}
	}
}
