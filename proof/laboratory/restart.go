package laboratory

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/locker"
)

// forgetful restarts so many servers without their memory while Alice holds the lock. She has it on as few servers as her
// strategy needs, since she could not reach the others; Bob reaches all.
func forgetful(servers int) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		alice, err := s.enter("Alice")
		if err != nil {
			return err
		}
		for i := s.row.quorum; i < s.row.servers; i++ {
			alice.wire.cutOff(i)
			s.tell("Alice", "can't reach server %d", i+1)
		}
		hers, err := s.mustHold(ctx, alice)
		if err != nil {
			return err
		}
		if err := s.goOn(ctx, hers); err != nil {
			return err
		}
		for i := s.row.quorum - servers; i < s.row.quorum; i++ {
			if err := s.servers[i].Restart(); err != nil {
				return err
			}
			s.tell(fmt.Sprintf("Server %d", i+1), "restarts and has forgotten all")
		}
		bob, err := s.enter("Bob")
		if err != nil {
			return err
		}
		his, err := s.waits(ctx, bob, s.of(brief), locker.WithTTL(s.row.long()), locker.WithoutRenewal())
		if err != nil {
			return err
		}
		if err := s.goOn(ctx, hers, his); err != nil || his == nil {
			return err
		}
		if err := errors.Join(s.write("Bob", his.Fence()), s.writeLate("Alice", hers.Fence())); err != nil {
			return err
		}
		s.believe(hers, his)
		switch err := hers.Extend(ctx, s.row.long()); {
		case errors.Is(err, locker.ErrLost):
			s.tell("Alice", "extends the lock and is told that it is lost")
		case err == nil:
			s.tell("Alice", "extends the lock and is told that it is hers")
		default:
			s.tell("Alice", "can't extend the lock, and is told so")
		}
		return nil
	}
}

// mustHold is for the one who begins.
func (s *stage) mustHold(ctx context.Context, a *actor) (*holder, error) {
	h, err := s.asks(ctx, a, locker.WithTTL(s.row.long()), locker.WithoutRenewal())
	if err == nil && h == nil {
		err = fmt.Errorf("%s was refused a lock that nobody has", a.name)
	}
	return h, err
}
