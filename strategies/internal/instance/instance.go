// Package instance is the common part of the strategies that keep a lock in one store. In each of
// them the token names the grant. They differ in how the grant is stored and in what it reports.
package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Place is where a strategy keeps its locks. It keeps the promises of [backends.Store] on errors,
// ctx and ttl.
type Place interface {
	// Put stores the token of req under its key, as SetNX of a store does.
	Put(ctx context.Context, req contract.Request) (backends.Result, error)
	// ExpireIf and DeleteIf act only if key holds token, as those of a store.
	ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error)
	DeleteIf(ctx context.Context, key, token string) (ok bool, err error)
	// Watch is as in [locker.Locker].
	Watch(ctx context.Context, key, waiter string, wake func()) error
}

// Over returns a Locker that keeps its locks in place. store is the store below place.
func Over(place Place, store any) locker.Locker { return over(place, store) }

func over(place Place, store any) *instance {
	one, ok := store.(backends.OneServer)
	i := &instance{place: place, cleanups: cleanup.New(ok && one.OneServer()), trips: tripsOf(place)}
	i.evictions, _ = store.(backends.Inspector)
	return i
}

// Is reports whether l is a Locker of this package. Under the ctx of [calls.ForNode] such a Locker leaves
// the cleanup of an attempt to its caller.
func Is(l locker.Locker) bool {
	switch l.(type) {
	case *instance, *started:
		return true
	}
	return false
}

// Set stores token under key, as SetNX of a [backends.Store] does.
type Set func(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error)

// Endpoint is the address of the store's server, for error texts: see package address.
func (i *instance) Endpoint() string { return address.Of(i.place) }

// Prompt tells whether the calls of the store end by themselves: see package prompt.
func (i *instance) Prompt() bool { return prompt.Of(i.place) }

// Prompt tells whether the calls of the store end by themselves.
func (v value) Prompt() bool { return prompt.Of(v.Store) }

// Endpoint returns the address of the store.
func (v value) Endpoint() string { return address.Of(v.Store) }

// Plain returns a Locker that keeps its locks in store, without queues or numbers.
func Plain(store backends.Store) locker.Locker {
	return Over(unqueued{value{store, store.SetNX}, false}, store)
}

// unqueued is a Place where a lock is one value that has a number, or none.
type unqueued struct {
	value
	numbered bool
}

// New returns a Locker that acquires with set, and uses store for all other calls. It moves no hold
// to another token, since it does not know how set numbers them.
func New(store backends.Store, set Set) locker.Locker { return Over(value{store, set}, store) }

// value is a Place where a lock is one value.
type value struct {
	backends.Store
	set Set
}

// Watch wakes all waiters: there is no queue.
func (v value) Watch(ctx context.Context, key, _ string, wake func()) error {
	return v.Store.Watch(ctx, key, wake)
}

func (v value) Put(ctx context.Context, req contract.Request) (backends.Result, error) {
	return v.set(ctx, req.Key, req.Token, req.TTL)
}

type instance struct {
	place     Place
	cleanups  *cleanup.Queue
	evictions backends.Inspector // tells why a lease is gone; nil: the store tells nothing
	trips     *roundTrips        // nil: the place has no queue that is told them
}

// ErrLate says that the reply to a grant took longer than the lease lasts.
var ErrLate = errors.New("granted so late that the lease had ended")

// Acquire makes one attempt to store the token. If no reply comes, the outcome is unknown. A
// cleanup then removes the token in the background until the store confirms that it is gone.
func (i *instance) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := req.Validate(); err != nil {
		return contract.Lease{}, Fault("acquire", req.Key, err)
	}
	return i.attempt(ctx, &req, "")
}

// attempt stores the token of req: in the place of from, if that is not empty.
func (i *instance) attempt(ctx context.Context, req *contract.Request, from string) (lease contract.Lease, err error) {
	if err := ctx.Err(); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	call, err := i.cleanups.Reserve(ctx, req.Key, !calls.IsNode(ctx))
	if err != nil {
		return contract.Lease{}, Fault("acquire", req.Key, err)
	}
	haunted := i.cleanups.Haunted(req.Key) // looked up before the attempt: the cleanup may be answered first
	started, res := time.Now(), backends.Result{}
	err = errGone
	defer func() { lease, err = i.acquired(ctx, req, started, res, err) }() // deferred in case the store panics
	res, err = i.put(ctx, req, from, call, started)
	if err == nil {
		i.trips.measure(started)
	}
	if err == nil && !res.OK {
		if found, ghost := i.cleanups.Settle(ctx, req.Key); ghost != nil {
			err = &cleanup.GhostError{Err: ghost}
		} else if found || haunted {
			err = errGone
			res, err = i.ask(ctx, req, from)
		}
	}
	return lease, err
}

// put sends the attempt and ends the call that Reserve began.
func (i *instance) put(ctx context.Context, req *contract.Request, from string, call cleanup.Call, started time.Time) (res backends.Result, err error) {
	err = errGone
	defer func() { i.heard(ctx, call, started, err) }()
	return i.ask(ctx, req, from)
}

// ask is one question to the place.
func (i *instance) ask(ctx context.Context, req *contract.Request, from string) (backends.Result, error) {
	if from == "" {
		return i.place.Put(ctx, *req)
	}
	if m, ok := i.place.(mover); ok {
		return m.Move(ctx, from, *req)
	}
	return backends.Result{}, contract.ErrNoTransfer
}

// errGone is the error of a call that never returned: the store panicked or ended the goroutine.
var errGone = errors.New("the store ended the call")

// heard notes what an attempt shows about the server. A permanent error is an answer: it may
// concern the key alone. A call whose ctx ended soon shows nothing. A quorum judges its nodes
// itself.
func (i *instance) heard(ctx context.Context, call cleanup.Call, started time.Time, err error) {
	switch {
	case err == nil || backends.Permanent(err):
		i.cleanups.Answered(call, nil)
	case ctx.Err() != nil && time.Since(started) < hurry || calls.IsNode(ctx):
		i.cleanups.Withdraw(call)
	default:
		i.cleanups.Answered(call, err)
	}
}

const hurry = time.Second // a call whose ctx ends within this time does not show that the server hangs

// acquired turns the store's answer into the result of Acquire. It frees the slot of the attempt,
// unless a cleanup needs it.
func (i *instance) acquired(ctx context.Context, req *contract.Request, started time.Time, res backends.Result, err error) (contract.Lease, error) {
	lease, err := granted(*req, started, res, err)
	if err == nil || backends.Permanent(err) || backends.Unsent(err) || calls.IsNode(ctx) {
		i.cleanups.Free()
	} else {
		e, until := i.entry(*req, err), time.Now().Add(req.TTL)
		e.Done = contract.DelayDrain(ctx)
		i.cleanups.Keep(ctx, e)
		err = &cleanedUp{err, until}
	}
	return outcome(*req, lease, res, err)
}

// granted builds the lease of an attempt. If a granted lease has ended already, the error is
// ErrLate.
func granted(req contract.Request, started time.Time, res backends.Result, err error) (contract.Lease, error) {
	lease := contract.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Fence: res.Fence, Share: contract.Share{Holds: res.Holds, Room: res.Room, Slot: res.Slot}, Granted: started, Expires: contract.Until(started, req.TTL),
	}
	if err == nil && res.OK && lease.Ended() {
		err = ErrLate
	}
	return lease, err
}

func outcome(req contract.Request, lease contract.Lease, res backends.Result, err error) (contract.Lease, error) {
	switch {
	case err != nil:
		return contract.Lease{}, Fault("acquire", req.Key, err)
	case !res.OK:
		held := &locker.HeldError{
			Key: req.Key, Left: res.Left, Attempts: 1, Holds: res.Holds, Foreign: res.Foreign, Holder: res.Holder, Position: res.Position,
		}
		if by, ok := backends.EvictedBy(res.Holder); ok {
			held.Holder, held.Err = by, &locker.EvictedError{By: by}
		}
		return contract.Lease{}, held
	}
	return lease, nil
}

// entry is the cleanup after an attempt whose outcome is unknown.
func (i *instance) entry(req contract.Request, unknown error) cleanup.Entry {
	return cleanup.Entry{Key: req.Key, TTL: req.TTL, Late: cleanup.LateOf(unknown), Remove: func(ctx context.Context) error {
		_, err := i.place.DeleteIf(ctx, req.Key, req.Token)
		return err
	}}
}

// cleanedUp is the error of an attempt that may have left its token in the store. The text says
// until when the cleanup runs, as local time of day, like the lines of the log beside it.
type cleanedUp struct {
	error
	until time.Time
}

func (e *cleanedUp) Error() string {
	return e.error.Error() + "; cleanup runs until " + e.until.Format(time.TimeOnly)
}

func (e *cleanedUp) Unwrap() error { return e.error }

// Again tells the Client that another attempt may be made at once: the connection had ended while it
// was idle. If this one reached the store all the same, its cleanup comes before the next is told
// that the lock is held.
func (e *cleanedUp) Again() bool {
	var s interface{ Stale() bool }
	return errors.As(e.error, &s) && s.Stale()
}

// Extend moves the end of the lease to ttl from now, unless it is later already.
func (i *instance) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := lease.Validate(); err != nil {
		return lease, Fault("extend", lease.Key, err)
	}
	if err := contract.ValidateTTL(ttl); err != nil {
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
		return lease, i.lost(ctx, lease)
	}
	return Extended(lease, started, ttl), nil
}

// Extended moves the end of the lease to ttl from started, unless it is later already.
func Extended(lease contract.Lease, started time.Time, ttl time.Duration) contract.Lease {
	if until := contract.Until(started, ttl); until.After(lease.Expires) {
		lease.Expires = until
	}
	return lease
}

// Release removes the token. It sends the command once: a caller that repeats it knows why the
// second one may find nothing.
func (i *instance) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return Fault("release", lease.Key, err)
	}
	ok, err := i.place.DeleteIf(ctx, lease.Key, lease.Token)
	if err == nil && !ok {
		return i.lost(ctx, lease)
	}
	return released(lease, ok, err)
}

func released(lease contract.Lease, ok bool, err error) error {
	switch {
	case err != nil:
		return Fault("release", lease.Key, err)
	case !ok:
		return locker.Lost(lease)
	}
	return nil
}

// Watch passes on the wake-ups of the store.
func (i *instance) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if err := contract.ValidateKey(key); err != nil {
		return Fault("watch", key, err)
	}
	err := i.place.Watch(ctx, key, waiter, wake)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return Fault("watch", key, err)
}

// Fault wraps err as the error of an operation on key. A value of another type under the key is
// reported as [locker.ErrForeignKey].
func Fault(op, key string, err error) error {
	if errors.Is(err, backends.ErrWrongType) {
		err = fmt.Errorf("%w: %w", locker.ErrForeignKey, err)
	}
	return &locker.Error{Op: op, Key: key, Err: err}
}
