// Package single locks on one instance of a store: a value that only its owner knows, under the key itself, with an
// expiry. It is the recipe of https://redis.io/docs/latest/commands/set/ ("Patterns"), and it excludes, and is
// excluded by, any other software that locks with SET NX PX on the same key.
//
// With Redis the commands are
//
//	acquire   SET key token NX PX ttl    granted as well, with ttl anew, if key holds token already
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake    if key holds token
//
// # What it does not promise
//
// The lock is as good as the memory of its one instance. Two holders at once are possible when the instance forgets a
// key before its time: a restart without the data (quarantine of restarted servers helps, see package goredis), a
// failover to a replica that had not got the key yet, eviction, FLUSHALL, a server clock that jumps forward. A holder
// that is paused past its lease learns of it at its next look at its context, not before; what it has sent by then
// still arrives. Grants are not numbered, so the resource can't refuse a holder who is too late.
package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// New returns a Locker that keeps its locks in store.
func New(store backends.Store) locker.Locker { return &single{store} }

type single struct{ store backends.Store }

// errLate is a grant whose reply took longer than the lease lasts.
var errLate = errors.New("granted so late that the lease had ended")

// Acquire makes one attempt to store the token. A reply that does not come leaves the outcome open; then the token is
// removed in the background until the store says that it is gone.
func (s *single) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := req.Validate(); err != nil {
		return locker.Lease{}, err
	}
	if err := ctx.Err(); err != nil {
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	started := time.Now()
	res, err := s.store.SetNX(ctx, req.Key, req.Token, req.TTL)
	lease := locker.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Granted: started, Expires: locker.Until(started, req.TTL),
	}
	switch {
	case err == nil && !res.OK:
		return locker.Lease{}, &locker.HeldError{Key: req.Key, Left: res.Left, Attempts: 1, Foreign: res.Foreign}
	case err == nil && lease.Ended():
		err = errLate
	case err == nil:
		return lease, nil
	}
	if !cleanup.Refused(err) {
		cleanup.Go(ctx, req.TTL, func(ctx context.Context) error {
			_, err := s.store.DeleteIf(ctx, req.Key, req.Token)
			return err
		})
	}
	return locker.Lease{}, fault("acquire", req.Key, err)
}

// Extend moves the end of the lease to ttl from now, unless it is later already.
func (s *single) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	if err := lease.Validate("extend"); err != nil {
		return lease, err
	}
	if err := locker.ValidateTTL(ttl); err != nil {
		return lease, fault("extend", lease.Key, err)
	}
	if !lease.Expires.IsZero() && lease.Ended() {
		return lease, locker.Lost(lease)
	}
	started := time.Now()
	ok, err := s.store.ExpireIf(ctx, lease.Key, lease.Token, ttl)
	switch {
	case err != nil:
		return lease, fault("extend", lease.Key, err)
	case !ok:
		return lease, locker.Lost(lease)
	}
	if until := locker.Until(started, ttl); until.After(lease.Expires) {
		lease.Expires = until
	}
	return lease, nil
}

// Release removes the token. It is sent once: whoever repeats it knows why it may find nothing.
func (s *single) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	ok, err := s.store.DeleteIf(ctx, lease.Key, lease.Token)
	switch {
	case err != nil:
		return fault("release", lease.Key, err)
	case !ok:
		return locker.Lost(lease)
	}
	return nil
}

// Watch passes on what the store knows.
func (s *single) Watch(ctx context.Context, key string, wake func()) error {
	if err := locker.ValidateKey(key); err != nil {
		return fault("watch", key, err)
	}
	err := s.store.Watch(ctx, key, wake)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return fault("watch", key, err)
}

func fault(op, key string, err error) error {
	if errors.Is(err, backends.ErrWrongType) {
		err = fmt.Errorf("%w: %w", locker.ErrForeignKey, err)
	}
	return &locker.Error{Op: op, Key: key, Err: err}
}
