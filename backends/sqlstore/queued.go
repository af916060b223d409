package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// SetNXQueued implements [backends.QueuedStore]. A store whose waiters poll has no queue, so an order is an
// error there.
func (s *PostgreSQL) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, t, unnumbered)
}

// SetNXNumbered implements [backends.NumberedStore].
func (s *PostgreSQL) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, t, byClock)
}

// position is the waiter that may get a position in the queue in this attempt, empty for none. asked is
// called with the answer to the attempt.
func (s *PostgreSQL) position(key string, t backends.Turn) (waiter string, asked func(granted bool), err error) {
	nobody := func(bool) {}
	switch {
	case strings.Contains(t.Waiter, "@"):
		return "", nil, backends.Invalidf("waiter %q has an @", t.Waiter)
	case s.wakes == nil && t.InOrder:
		return "", nil, backends.Invalid("waiters that poll can't stand in order: use the store of package backends/pgxstore with a listener")
	case s.wakes == nil || t.Waiter == "":
		return "", nobody, nil
	}
	mine := s.turns.Ask(key, t.Waiter, t.Waiter)
	if mine == nil {
		return "", nobody, nil
	}
	return t.Waiter, func(granted bool) {
		if !s.turns.Asked(mine, granted) {
			go s.quit(key, t.Waiter) // what was sent before may have been there first
		}
	}, nil
}

// WatchQueued implements [backends.QueuedStore].
func (s *PostgreSQL) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	switch {
	case s.wakes == nil:
		return errPolling
	case waiter == "" || strings.Contains(waiter, "@"):
		return backends.Invalidf("waiter %q is empty or has an @", waiter)
	}
	if _, err := s.prepare(ctx, key, waiter); err != nil {
		return err
	}
	leave, err := s.wakes.join(ctx)
	if err != nil {
		return err
	}
	t := &turns.Turn{Key: key, Waiter: waiter, Wake: wake}
	s.turns.Add(t)
	context.AfterFunc(ctx, func() {
		if s.turns.Remove(t) != "" {
			s.quit(key, waiter)
		}
		leave()
	})
	return nil
}

// quit removes a waiter from the queue. If that fails, the waiter costs the others one reservation.
func (s *PostgreSQL) quit(key, waiter string) {
	_ = s.behind("SELECT lockstep.quit($1,$2,$3)", s.key(key), waiter, reservation)
}

// behind runs a statement for which nobody waits, and whose failure costs a waiter some time.
func (s *PostgreSQL) behind(statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), behindLimit)
	defer cancel()
	var ok bool
	return s.exec.Row(ctx, statement, args, &ok)
}

const behindLimit = 5 * time.Second

// Watch implements [backends.Store].
func (s *PostgreSQL) Watch(ctx context.Context, key string, wake func()) error {
	if s.wakes == nil {
		return errPolling
	}
	if _, err := s.prepare(ctx, key); err != nil {
		return err
	}
	return s.wakes.watch(ctx, key, wake)
}
