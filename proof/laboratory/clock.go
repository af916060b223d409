package laboratory

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// clockAhead lets Bob ask for a lock that is held; by his clock it is an hour later.
func clockAhead(ctx context.Context, s *stage) error {
	alice, err := s.enter("Alice")
	if err != nil {
		return err
	}
	hers, err := s.mustHold(ctx, alice)
	if err != nil {
		return err
	}
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	bob.wire.ahead = time.Hour
	s.tell("Bob", "has a clock that is an hour ahead")
	if err := s.goOn(ctx, hers); err != nil {
		return err
	}
	his, err := s.waits(ctx, bob, s.of(brief), locker.WithTTL(s.row.long()), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	return s.goOn(ctx, hers, his)
}
