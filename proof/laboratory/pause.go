package laboratory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// paused stops the process that has the lock until its lease has ended and someone else may have the lock. When it goes on, it
// writes, as it was about to, and only then looks at its context.
func paused(ctx context.Context, s *stage) error {
	alice, err := s.start(ctx, "Alice", task{TTL: s.of(ttl)}) // not extended, so that the end of her lease is known here
	if err != nil {
		return err
	}
	held, err := alice.hears(sayHolds)
	if err != nil {
		return err
	}
	hers := s.holdsSince(alice, held)
	if err := alice.freeze(); err != nil {
		return err
	}
	// At the end of her lease her Client releases the lock, and the next one may have it.
	if late := time.Since(held.Expires); late > 0 {
		return fmt.Errorf("%s was stopped %v after her lease had ended", alice.who, late)
	}
	s.tell("Alice", "is stopped")
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	his, err := s.waits(ctx, bob, s.of(patience), locker.WithTTL(s.row.long()))
	if err != nil {
		return err
	}
	if his != nil {
		if err := s.goOn(ctx, his); err != nil {
			return err
		}
		if err := s.write("Bob", his.Fence()); err != nil {
			return err
		}
	}
	if err := errors.Join(alice.tellToWrite(), alice.thaw()); err != nil {
		return err
	}
	wrote, err := alice.hears(sayWrites)
	if err != nil {
		return err
	}
	s.Holds[hers].Until, s.Holds[hers].Works = held.Expires, wrote.At
	s.Events = append(s.Events, Event{wrote.At, "Alice", "goes on, and sends what she was about to write"})
	if his == nil { // nobody was before her
		if err := s.write("Alice", wrote.Fence); err != nil {
			return err
		}
	} else {
		if err := s.writeLate("Alice", wrote.Fence); err != nil {
			return err
		}
		s.believe(his)
	}
	looks, err := alice.hears(sayLooks)
	if err != nil {
		return err
	}
	if s.untold = looks.Text == ""; !s.untold {
		s.Events = append(s.Events, Event{looks.At, "Alice", "looks at her context, which says: " + looks.Text})
	}
	return nil
}
