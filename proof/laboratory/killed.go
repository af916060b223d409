package laboratory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// killedBetween kills a process that has sent all commands of its attempt but the last, and looks what is left when any
// lease of it would be over.
func killedBetween(ctx context.Context, s *stage) error {
	commands, err := s.rehearse(ctx)
	if err != nil {
		return err
	}
	alice, err := s.start(ctx, "Alice", task{TTL: s.of(ttl), StopBefore: len(commands)})
	if err != nil {
		return err
	}
	stopped, err := alice.hears(sayStopped)
	if err != nil {
		return err
	}
	if last := commands[len(commands)-1]; stopped.Text != last {
		return fmt.Errorf("%s was stopped before %q, which is not %q", alice.who, stopped.Text, last)
	}
	s.tell("Alice", "is killed with SIGKILL, before %s", stopped.Text)
	alice.stop()
	if err := pause(ctx, s.of(2*ttl)); err != nil {
		return err
	}
	endless, err := s.hasNoExpiry(ctx)
	if err != nil {
		return err
	}
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	came := time.Now()
	his, err := s.asks(ctx, bob, locker.WithTTL(s.of(ttl)), locker.WithoutRenewal())
	switch {
	case err != nil:
		return err
	case his != nil:
		s.next = gotIt
		return s.goOn(ctx, his)
	case !endless:
		return errors.New("the lock was refused, but has an expiry")
	}
	s.tell("Server", "said before that the key had no expiry")
	if his, err = s.waits(ctx, bob, s.of(patience), locker.WithTTL(s.of(ttl)), locker.WithoutRenewal()); err != nil {
		return err
	}
	if his != nil {
		s.next, s.After = gotItAfterRepair, his.from.Sub(came)
		return s.goOn(ctx, his)
	}
	return s.neverFree(ctx)
}
