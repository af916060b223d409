package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// after is a call that takes so long, unless its ctx ends: it opens a connection, which takes several
// round trips, and one that is given up is of no use to the next call.
func after(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAReleaseThatOpensAConnectionToAFarServerIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onRelease = func(ctx context.Context) error {
			if err := after(ctx, 2500*time.Millisecond); err != nil {
				return err
			}
			s.store.Delete("key")
			return nil
		}
		l := mustLock(t, c, "key")
		if err := l.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	})
}

func TestARenewalThatOpensAConnectionToAFarServerKeepsTheLock(t *testing.T) {
	for _, takes := range []time.Duration{1200 * time.Millisecond, 2400 * time.Millisecond, 4500 * time.Millisecond} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				if err := after(ctx, takes); err != nil {
					return contract.Lease{}, err
				}
				return next()
			}
			l := mustLock(t, c, "key", locker.WithTTL(10*time.Second))
			time.Sleep(time.Minute)
			if err := l.Context().Err(); err != nil {
				t.Errorf("with renewals that take %v: %v", takes, context.Cause(l.Context()))
			}
			if _, extends, _, _ := s.asked(); extends > 60 {
				t.Errorf("with renewals that take %v: %d in a minute", takes, extends)
			}
			mustUnlock(t, l)
		})
	}
}
