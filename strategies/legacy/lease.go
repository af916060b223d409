package legacy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// The recipes share these checks before anything is sent, and the lease of a grant. The end of a
// lease and the errors are as in single and in package instance.

func checkRequest(ctx context.Context, store backends.LegacyStore, req contract.Request) error {
	if err := req.Validate(); err != nil {
		return instance.Fault("acquire", req.Key, err)
	}
	if err := checkTTL(ctx, store, req.TTL); err != nil {
		return instance.Fault("acquire", req.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return instance.Fault("acquire", req.Key, err)
	}
	return nil
}

func checkExtension(ctx context.Context, store backends.LegacyStore, lease contract.Lease, ttl time.Duration) error {
	if err := lease.Validate(); err != nil {
		return instance.Fault("extend", lease.Key, err)
	}
	if err := checkTTL(ctx, store, ttl); err != nil {
		return instance.Fault("extend", lease.Key, err)
	}
	if !lease.Expires.IsZero() && lease.Ended() {
		return locker.Lost(lease)
	}
	return nil
}

func checkTTL(ctx context.Context, store backends.LegacyStore, ttl time.Duration) error {
	if err := contract.ValidateTTL(ttl); err != nil {
		return err
	}
	return backends.CheckTTL(ctx, ttl, store.MaxTTL(), "WithMaxTTL of the store's package")
}

func granted(req contract.Request, started time.Time) contract.Lease {
	return contract.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Granted: started, Expires: contract.Until(started, req.TTL),
	}
}

func held(req contract.Request, left time.Duration) error {
	return &locker.HeldError{Key: req.Key, Attempts: 1, Left: max(left, 0)}
}

// unlessLost is for a cleanup: a lease that is gone needs none.
func unlessLost(err error) error {
	if errors.Is(err, locker.ErrLost) {
		return nil
	}
	return err
}

// limited is what no recipe can do: wake waiters, and move a hold.
type limited struct{}

var errUnwatched = fmt.Errorf("a legacy recipe wakes nobody: %w", errors.ErrUnsupported)

// Transfer returns an error that matches [errors.ErrUnsupported].
func (limited) Transfer(_ context.Context, _ string, req contract.Request) (contract.Lease, error) {
	return contract.Lease{}, instance.Fault("acquire", req.Key, contract.ErrNoTransfer)
}

// Watch returns an error that matches [errors.ErrUnsupported].
func (limited) Watch(_ context.Context, key, _ string, _ func()) error {
	if err := contract.ValidateKey(key); err != nil {
		return instance.Fault("watch", key, err)
	}
	return errUnwatched
}
