// Package instance is what strategies share that keep a lock in one store, where each grant is something that its token
// names: they differ in how it is put there, and so in what a grant tells.
package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// A Place is where a strategy keeps its locks. The promises of [backends.Store] on errors, ctx and ttl hold for it.
type Place interface {
	// Put stores the token of req under its key, as SetNX of a store does.
	Put(ctx context.Context, req locker.Request) (backends.Result, error)
	// ExpireIf and DeleteIf are those of a store: they do it if key has the token.
	ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error)
	DeleteIf(ctx context.Context, key, token string) (ok bool, err error)
	// Watch is that of a Locker.
	Watch(ctx context.Context, key, waiter string, wake func()) error
}

// Over returns a Locker that keeps its locks in place, which is in store.
func Over(place Place, store any) locker.Locker { return over(place, store) }

func over(place Place, store any) *instance {
	i := &instance{place: place}
	if s, ok := store.(backends.OneServer); ok {
		i.cleanups.OneServer = s.OneServer()
	}
	return i
}

// Is tells whether l is a Locker of this package. It leaves the cleanup of an attempt under a ctx
// with [cleanup.ByCaller] to its caller.
func Is(l locker.Locker) bool {
	switch l.(type) {
	case *instance, *started:
		return true
	}
	return false
}

// Set stores token under key, as SetNX of a [backends.Store] does.
type Set func(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error)

// Endpoint is the address of the server that has the store, for the texts of errors: see package address.
func (i *instance) Endpoint() string { return address.Of(i.place) }

// Endpoint is that of the store.
func (v value) Endpoint() string { return address.Of(v.Store) }

// New returns a Locker that takes its locks with set and does all else with store.
func New(store backends.Store, set Set) locker.Locker { return Over(value{store, set}, store) }

// value is the place of a lock that is one value.
type value struct {
	backends.Store
	set Set
}

// Watch wakes all who wait: there is no queue.
func (v value) Watch(ctx context.Context, key, _ string, wake func()) error {
	return v.Store.Watch(ctx, key, wake)
}

func (v value) Put(ctx context.Context, req locker.Request) (backends.Result, error) {
	return v.set(ctx, req.Key, req.Token, req.TTL)
}

type instance struct {
	place    Place
	cleanups cleanup.Queue
}

// ErrLate is a grant whose reply took longer than the lease lasts.
var ErrLate = errors.New("granted so late that the lease had ended")

// Acquire makes one attempt to store the token. A reply that does not come leaves the outcome open; then the token is
// removed in the background until the store says that it is gone.
func (i *instance) Acquire(ctx context.Context, req locker.Request) (lease locker.Lease, err error) {
	if err := req.Validate(); err != nil {
		return locker.Lease{}, err
	}
	if err := ctx.Err(); err != nil {
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	call, err := i.cleanups.Reserve(ctx, req.Key)
	if err != nil {
		return locker.Lease{}, Fault("acquire", req.Key, err)
	}
	haunted := i.cleanups.Haunted(req.Key) // the cleanup may be answered before this attempt is
	started, res := time.Now(), backends.Result{}
	err = errGone
	defer func() { lease, err = i.acquired(ctx, req, started, res, err) }() // also if the store panics
	res, err = i.put(ctx, req, call, started)
	if err == nil && !res.OK {
		if found, ghost := i.cleanups.Settle(ctx, req.Key); ghost != nil {
			err = &cleanup.GhostError{Err: ghost}
		} else if found || haunted {
			err = errGone
			res, err = i.place.Put(ctx, req)
		}
	}
	return lease, err
}

// put asks the store, and counts the attempt out.
func (i *instance) put(ctx context.Context, req locker.Request, call cleanup.Call, started time.Time) (res backends.Result, err error) {
	err = errGone
	defer func() { i.heard(ctx, call, started, err) }()
	return i.place.Put(ctx, req)
}

// errGone is the outcome of a call that never returned: the store panicked or ended the goroutine.
var errGone = errors.New("the store ended the call")

// heard notes what an attempt says of the server. A permanent error is an answer: it may be about
// the key alone. A caller that was in a hurry says nothing. The quorum judges its nodes itself.
func (i *instance) heard(ctx context.Context, call cleanup.Call, started time.Time, err error) {
	switch {
	case !i.cleanups.OneServer:
	case err == nil || cleanup.Permanent(err):
		i.cleanups.Answered(call, nil)
	case ctx.Err() != nil && time.Since(started) < hurry || ctx.Value(cleanup.ByCaller{}) != nil:
		i.cleanups.Withdraw(call)
	default:
		i.cleanups.Answered(call, err)
	}
}

const hurry = time.Second // a call whose ctx ends sooner does not show that the server hangs

// acquired makes of what the store has answered what a Locker does. It gives back the slot of the
// attempt, unless that is needed for a cleanup.
func (i *instance) acquired(ctx context.Context, req locker.Request, started time.Time, res backends.Result, err error) (locker.Lease, error) {
	lease, err := granted(req, started, res, err)
	if err == nil || cleanup.Permanent(err) || cleanup.Unsent(err) {
		i.cleanups.Free()
	} else if until := time.Now().Add(req.TTL); i.cleanups.Keep(ctx, i.entry(req)) {
		err = &cleanedUp{err, until}
	}
	return outcome(req, lease, res, err)
}

// granted is the lease of a grant, if it has not ended yet.
func granted(req locker.Request, started time.Time, res backends.Result, err error) (locker.Lease, error) {
	lease := locker.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Fence: res.Fence, Holds: res.Holds, Granted: started, Expires: locker.Until(started, req.TTL),
	}
	if err == nil && res.OK && lease.Ended() {
		err = ErrLate
	}
	return lease, err
}

func outcome(req locker.Request, lease locker.Lease, res backends.Result, err error) (locker.Lease, error) {
	switch {
	case err != nil:
		return locker.Lease{}, Fault("acquire", req.Key, err)
	case !res.OK:
		return locker.Lease{}, &locker.HeldError{Key: req.Key, Left: res.Left, Attempts: 1, Foreign: res.Foreign, Position: res.Position}
	}
	return lease, nil
}

// entry is the cleanup of what an attempt may have left.
func (i *instance) entry(req locker.Request) cleanup.Entry {
	return cleanup.Entry{Key: req.Key, TTL: req.TTL, Remove: func(ctx context.Context) error {
		_, err := i.place.DeleteIf(ctx, req.Key, req.Token)
		return err
	}}
}

// cleanedUp is the error of an attempt that may have left something in the store, and says until
// when that is looked for: a time of day in the local time zone, as in the lines of a log beside
// it.
type cleanedUp struct {
	error
	until time.Time
}

func (e *cleanedUp) Error() string {
	return e.error.Error() + "; cleanup runs until " + e.until.Format(time.TimeOnly)
}

func (e *cleanedUp) Unwrap() error { return e.error }

// Extend moves the end of the lease to ttl from now, unless it is later already.
func (i *instance) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	if err := lease.Validate("extend"); err != nil {
		return lease, err
	}
	if err := locker.ValidateTTL(ttl); err != nil {
		return lease, Fault("extend", lease.Key, err)
	}
	if !lease.Expires.IsZero() && lease.Ended() {
		return lease, locker.Lost(lease)
	}
	started := time.Now()
	ok, err := i.place.ExpireIf(ctx, lease.Key, lease.Token, ttl)
	switch {
	case err != nil:
		return lease, Fault("extend", lease.Key, err)
	case !ok:
		return lease, locker.Lost(lease)
	}
	return Extended(lease, started, ttl), nil
}

// Extended moves the end of the lease to ttl from started, unless it is later already.
func Extended(lease locker.Lease, started time.Time, ttl time.Duration) locker.Lease {
	if until := locker.Until(started, ttl); until.After(lease.Expires) {
		lease.Expires = until
	}
	return lease
}

// Release removes the token. It is sent once: whoever repeats it knows why it may find nothing.
func (i *instance) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	ok, err := i.place.DeleteIf(ctx, lease.Key, lease.Token)
	return released(lease, ok, err)
}

func released(lease locker.Lease, ok bool, err error) error {
	switch {
	case err != nil:
		return Fault("release", lease.Key, err)
	case !ok:
		return locker.Lost(lease)
	}
	return nil
}

// Watch passes on what the store knows.
func (i *instance) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if err := locker.ValidateKey(key); err != nil {
		return Fault("watch", key, err)
	}
	err := i.place.Watch(ctx, key, waiter, wake)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return Fault("watch", key, err)
}

// Fault is the error of an operation on a store, to which a value of another type is foreign.
func Fault(op, key string, err error) error {
	if errors.Is(err, backends.ErrWrongType) {
		err = fmt.Errorf("%w: %w", locker.ErrForeignKey, err)
	}
	return &locker.Error{Op: op, Key: key, Err: err}
}
