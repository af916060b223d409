package legacy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

// This is what the recipes have in common: what is refused before anything is sent, when a lease ends, and what errors
// say. It is the same as for single.

func checkRequest(ctx context.Context, req locker.Request) error {
	if err := req.Validate(); err != nil {
		return err
	}
	if err := checkTTL(req.TTL); err != nil {
		return fault("acquire", req.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return fault("acquire", req.Key, err)
	}
	return nil
}

func checkExtension(lease locker.Lease, ttl time.Duration) error {
	if err := lease.Validate("extend"); err != nil {
		return err
	}
	if err := checkTTL(ttl); err != nil {
		return fault("extend", lease.Key, err)
	}
	if !lease.Expires.IsZero() && lease.Ended() {
		return locker.Lost(lease)
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl > backends.DefaultMaxTTL {
		return refusal(fmt.Sprintf("ttl %v is over the limit of %v", ttl, backends.DefaultMaxTTL))
	}
	return locker.ValidateTTL(ttl)
}

func granted(req locker.Request, started time.Time) locker.Lease {
	return locker.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Granted: started, Expires: locker.Until(started, req.TTL),
	}
}

// extended moves the end of the lease to ttl from started, unless it is later already.
func extended(lease locker.Lease, started time.Time, ttl time.Duration) locker.Lease {
	if until := locker.Until(started, ttl); until.After(lease.Expires) {
		lease.Expires = until
	}
	return lease
}

// errLate is a grant whose reply took longer than the lease lasts.
var errLate = errors.New("granted so late that the lease had ended")

func fault(op, key string, err error) error {
	if errors.Is(err, backends.ErrWrongType) {
		err = fmt.Errorf("%w: %w", locker.ErrForeignKey, err)
	}
	return &locker.Error{Op: op, Key: key, Err: err}
}

func held(req locker.Request, left time.Duration) error {
	return &locker.HeldError{Key: req.Key, Attempts: 1, Left: max(left, 0)}
}

// unlessLost is for clean-up, to which it is as good that a lease is gone.
func unlessLost(err error) error {
	if errors.Is(err, locker.ErrLost) {
		return nil
	}
	return err
}

// unwatched is the Watch of recipes that wake nobody.
type unwatched struct{}

var errUnwatched = fmt.Errorf("a legacy recipe wakes nobody: %w", errors.ErrUnsupported)

// Watch returns an error that matches [errors.ErrUnsupported].
func (unwatched) Watch(_ context.Context, key string, _ func()) error {
	if err := locker.ValidateKey(key); err != nil {
		return fault("watch", key, err)
	}
	return errUnwatched
}

// refusal is bad input: nothing was sent.
type refusal string

func (r refusal) Error() string { return string(r) }

// Refused says that repeating will not help.
func (r refusal) Refused() bool { return true }

// ErrorType is "invalid".
func (r refusal) ErrorType() string { return "invalid" }
