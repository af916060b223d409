package laboratory

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// crash kills the process that has the lock, and extends it, and then waits for the lock.
func crash(ctx context.Context, s *stage) error {
	alice, err := s.start(ctx, "Alice", task{TTL: s.of(ttl), Extend: true})
	if err != nil {
		return err
	}
	held, err := alice.hears(sayHolds)
	if err != nil {
		return err
	}
	hers := s.holdsSince(alice, held)
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	if err := pause(ctx, together); err != nil {
		return err
	}
	dies := time.Now()
	s.Holds[hers].Until, s.Holds[hers].Works = dies, dies
	s.tell("Alice", "is killed with SIGKILL")
	alice.stop()
	his, err := s.waits(ctx, bob, s.of(patience), locker.WithTTL(s.row.long()))
	if err != nil {
		return err
	}
	if his != nil {
		s.next, s.After = gotIt, his.from.Sub(dies)
		return s.goOn(ctx, his)
	}
	return s.neverFree(ctx)
}

// neverFree takes a lock that was not to be had for one that never will be, if the servers say so too.
func (s *stage) neverFree(ctx context.Context) error {
	endless, err := s.hasNoExpiry(ctx)
	if err != nil {
		return err
	}
	if !endless {
		return errors.New("the lock was not to be had, but has an expiry")
	}
	s.next = neverGotIt
	s.tell("Server", "says that the key has no expiry")
	return nil
}
