package laboratory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// loser lets two ask for a lock whose last owner has died. Alice is about to send the last command of her attempt, and Bob
// the same one, with a timeout that is shorter. Hers arrives, then his; and when his timeout is over, Carol comes.
func loser(ctx context.Context, s *stage) error {
	commands, err := s.rehearse(ctx)
	if err != nil {
		return err
	}
	alice, err := s.enter("Alice")
	if err != nil {
		return err
	}
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	first := alice.wire.stopBefore(stop{before: len(commands)})
	hers := s.asksSlowly(ctx, alice, s.row.long())
	s.standsStill(alice, first, hers)
	last := commands[len(commands)-1]
	second := bob.wire.stopBefore(stop{command: last})
	his := s.asksSlowly(ctx, bob, s.of(brief))
	s.standsStill(bob, second, his)

	close(first.goOn) // whatever comes of that, Bob has to go on as well
	a, err := s.finish(alice, hers)
	time.Sleep(moment)
	close(second.goOn)
	b, other := s.finish(bob, his)
	if err = errors.Join(err, other); err != nil {
		return err
	}
	if at := first.reached(); a == nil || at != last {
		return fmt.Errorf("%s was refused, or stopped before %q, which is not %q", alice.name, at, last)
	}
	if err := s.goOn(ctx, a, b); err != nil {
		return err
	}
	carol, err := s.enter("Carol")
	if err != nil {
		return err
	}
	c, err := s.waits(ctx, carol, s.of(4*brief), locker.WithTTL(s.row.long()), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	return s.goOn(ctx, a, b, c)
}

// A call is an attempt under way.
type call struct {
	from time.Time
	done chan struct{}
	lock *locker.Lock
	err  error
}

// asksSlowly makes one attempt, in the background.
func (s *stage) asksSlowly(ctx context.Context, a *actor, ttl time.Duration) *call {
	c := &call{from: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.lock, c.err = a.locks.TryLock(ctx, s.key, locker.WithTTL(ttl), locker.WithoutRenewal())
	}()
	s.tell(a.name, "asks for the lock, for %v", ttl)
	return c
}

// standsStill waits until the actor stands still, or has its answer without what it stands still for: a quorum may be
// reached without the last server.
func (s *stage) standsStill(a *actor, at *stop, c *call) {
	select {
	case <-at.arrived:
		s.tell(a.name, "is stopped before %s", at.name)
	case <-c.done:
	}
	a.wire.rest()
	time.Sleep(moment)
}

func (s *stage) finish(a *actor, c *call) (*holder, error) {
	<-c.done
	return s.answered(a, c.from, c.lock, c.err)
}
