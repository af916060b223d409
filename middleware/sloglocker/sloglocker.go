// Package sloglocker logs what becomes of locks with log/slog.
//
//	locks := locker.New(single.New(store), locker.WithMiddleware(sloglocker.New(sloglocker.WithLogger(logger))))
//
// Each Lock makes one record, when it ends. Each hold that it begins makes one more when it is
// over, whether or not Unlock is ever called: [Released], [ReleaseFailed], [Lost] or [HeldTooLong].
// In between there is one for each extension, and [Abandoned] if the Lock was forgotten. What goes
// as it should is at Debug; what failed and is tried again, or ran into a limit that someone has
// set, at Warn; what failed, at Error. See [Event] for all of them.
//
// A record is made with the ctx of its call, or of the hold, so a handler that takes the id of a trace from there finds it. For
// what is below the level of the handler, its Enabled is called and nothing is put together.
//
// # Attributes
//
// Each where it is known:
//
//	key         name of the lock, see WithKeyAttribute
//	owner       who asked, for locks that nest
//	outcome     of a Lock: acquired, busy, timeout, canceled or error
//	ttl         life of a lease that was asked for
//	waited      how long the Lock took
//	attempts    how often it asked the store
//	contended   someone else had the lock meanwhile
//	quorum      nodes that granted it, and all: "3/5"
//	fence       number of the grant
//	holds       of this owner, itself among them
//	held        how long it was held
//	left        life that was left: of the other's lease if the lock is busy, else of the holder's own when it was answered
//	reason      why it was lost: a locker.LostReason
//	error       what failed
//	error_type  the same in one word
//
// A token, which is a secret, is in none of them.
//
// # What it does not tell
//
// A Lock whose options or ctx are refused before anything is asked makes no record, nor does an extension that nobody needs
// any more: Unlock was called, or the ctx given to Lock has ended.
//
// Given to [locker.Wrap] it logs each attempt; use one or the other, or a hold is told twice. Around a node of a quorum, or
// without a Client, there is no hold that could end: there it logs what is granted, refused and failed, and no release or loss.
package sloglocker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// New returns middleware that logs to the logger given by [WithLogger]. Without one it logs nothing and costs nothing.
func New(opts ...Option) locker.Middleware {
	l := newLog(opts)
	return func(next locker.Locker) locker.Locker {
		if l.logger == nil {
			return next
		}
		return &logged{Locker: next, log: l, begin: l.begin}
	}
}

// logged is a Locker with a log. Watch needs none: it is a hint, and if it is refused that ends the wait.
type logged struct {
	locker.Locker
	*log
	begin func(context.Context, locker.Lease) (context.Context, func(time.Time, error))
}

// errNoAnswer is what a Locker says that panics or ends the goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// Acquire logs how it ends, and follows the hold.
func (l *logged) Acquire(ctx context.Context, req locker.Request) (lease locker.Lease, err error) {
	began := time.Now()
	err = errNoAnswer
	defer func() { l.acquired(ctx, req, lease, err, began) }() // also if the Locker panics
	lease, err = l.Locker.Acquire(ctx, req)
	if err == nil {
		lease = lease.OnHold(l.begin)
	}
	return lease, err
}

// Extend logs an answer that matters.
func (l *logged) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (extended locker.Lease, err error) {
	err = errNoAnswer
	l.abandoned(ctx, lease)
	defer func() { l.extended(ctx, lease, ttl, err) }()
	return l.Locker.Extend(ctx, lease, ttl)
}

// Release logs a failure. The Client repeats it; what comes of that is told at the end of the hold.
func (l *logged) Release(ctx context.Context, lease locker.Lease) (err error) {
	err = errNoAnswer
	defer func() { l.answered(ctx, lease, err) }()
	return l.Locker.Release(ctx, lease)
}

// hold is a lock while it is held, and the context of that, in which an extension finds it.
type hold struct {
	context.Context
	log   *log
	lease locker.Lease
	began time.Time
}

func (l *log) begin(ctx context.Context, lease locker.Lease) (context.Context, func(time.Time, error)) {
	h := &hold{Context: ctx, log: l, lease: lease, began: time.Now()}
	h.lease.Token = "" // the log has no use for it
	return h, h.end
}

func (h *hold) end(at time.Time, cause error) { h.log.ended(h, h.lease, cause, at.Sub(h.began)) }

type holdKey struct{}

// Value gives the hold itself.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// unwanted tells whether ctx, that of an extension, has ended because nobody needs the lock any more. A limit for one
// extension may be over as well; then the lock is still needed, and the store is slow.
func unwanted(ctx context.Context) bool {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return errors.Is(ctx.Err(), context.Canceled) || h != nil && h.Err() != nil
}
