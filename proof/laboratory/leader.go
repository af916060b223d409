package laboratory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// leaderCrashes kills the process of a leader.
func leaderCrashes(ctx context.Context, s *stage) error {
	alice, err := s.start(ctx, "Alice", task{TTL: s.of(ttl), Extend: true})
	if err != nil {
		return err
	}
	said, err := alice.hears(sayHolds)
	if err != nil {
		return err
	}
	hers := s.holdsSince(alice, said)
	if err := pause(ctx, together); err != nil {
		return err
	}
	dies := time.Now()
	s.Holds[hers].Until, s.Holds[hers].Works = dies, dies
	s.tell("Alice", "is killed with SIGKILL")
	alice.stop()
	bob, err := s.candidate(ctx, "Bob", s.of(ttl))
	if err != nil {
		return err
	}
	defer bob.end()
	if err := bob.leads(ctx, s.of(patience)); err != nil {
		return err
	}
	s.next, s.After = gotIt, s.Holds[bob.at].From.Sub(dies)
	return pause(ctx, together)
}

// toldToStop tells a leader to stop. Its work goes on for a while, and writes.
func toldToStop(ctx context.Context, s *stage) error {
	alice, err := s.candidate(ctx, "Alice", s.of(ttl))
	if err != nil {
		return err
	}
	defer alice.end()
	if err := alice.leads(ctx, s.of(patience)); err != nil {
		return err
	}
	bob, err := s.candidate(ctx, "Bob", s.of(ttl))
	if err != nil {
		return err
	}
	defer bob.end()
	if err := pause(ctx, together); err != nil {
		return err
	}
	s.tell("Alice", "is told to stop, and winds down")
	alice.stop()
	stopped := time.Now()
	late := bob.leads(ctx, s.of(ttl)) == nil // while she works
	if late {                                // and then she writes
		s.late = landed
		s.tell("Resource", "accepts what Alice writes")
		if err := pause(ctx, together); err != nil {
			return err
		}
	}
	ended := alice.end()
	if errors.Is(alice.err, locker.ErrLost) {
		return fmt.Errorf("%w: the lease of Alice has ended", errSlow)
	}
	s.Holds[alice.at].Works = ended
	if s.Holds[alice.at].Until = ended; late {
		s.Holds[alice.at].Until = stopped // she has released it
	}
	s.tell("Alice", "has ended her work")
	if err := bob.leads(ctx, s.of(patience)); err != nil {
		return err
	}
	if !late {
		s.next = gotIt
	}
	return pause(ctx, together)
}

// A candidate runs for the leadership in this process, once.
type candidate struct {
	*stage
	name  string
	at    int // its hold in the record, once it leads
	stop  context.CancelFunc
	work  chan struct{} // closed when its work may end
	began chan time.Time
	over  chan struct{} // closed when its run has returned
	err   error         // of its run
	once  sync.Once
	led   bool
	ended time.Time
}

// candidate brings in a candidate, whose work ends when end is called.
func (s *stage) candidate(ctx context.Context, name string, ttl time.Duration) (*candidate, error) {
	a, err := s.enter(name)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	c := &candidate{stage: s, name: name, stop: stop, work: make(chan struct{}), began: make(chan time.Time, 1), over: make(chan struct{})}
	go func() {
		defer close(c.over)
		c.err = s.row.run(ctx, a.locks, s.key, []locker.Option{locker.WithTTL(ttl)}, func(context.Context, uint64) error {
			c.began <- time.Now()
			<-c.work
			return errWorkIsOver
		})
	}()
	s.tell(name, "is a candidate")
	return c, nil
}

var errWorkIsOver = errors.New("the work is over")

// leads waits until it leads.
func (c *candidate) leads(ctx context.Context, patience time.Duration) error {
	if c.led {
		return nil
	}
	select {
	case at := <-c.began:
		c.leadsSince(at)
		return nil
	case <-c.over:
		return fmt.Errorf("%s did not lead: %w", c.name, c.err)
	case <-time.After(patience):
		return fmt.Errorf("%s did not lead within %v", c.name, patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *candidate) leadsSince(at time.Time) {
	c.led, c.at = true, len(c.Holds)
	c.Holds = append(c.Holds, Hold{Who: c.name, From: at, Until: at, Works: at})
	c.Events = append(c.Events, Event{at, c.name, "leads"})
}

// end lets its work end, waits until it has, and tells when that was.
func (c *candidate) end() time.Time {
	c.once.Do(func() {
		c.ended = time.Now()
		if c.led {
			c.Holds[c.at].Until, c.Holds[c.at].Works = c.ended, c.ended
		}
		close(c.work)
		c.stop()
		<-c.over
	})
	return c.ended
}
