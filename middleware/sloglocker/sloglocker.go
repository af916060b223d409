// Package sloglocker logs locks with log/slog.
//
//	logs := sloglocker.New(sloglocker.WithLogger(logger))
//	locks := locker.New(single.New(store), locker.WithMiddleware(logs))
//
// Each Lock makes one record when it ends. Each hold makes one more when it is over, also if Unlock
// is never called: [Released], [ReleaseFailed], [Lost] or [HeldTooLong]. Between them each
// extension makes one, a forgotten Lock makes [Abandoned], and a minimum hold makes [Kept].
//
// A hook of [Terms] logs when this process begins to lead an election, and when it leads no more:
// [TermBegan] and [TermEnded].
//
// Success is at Debug, and a term at Info. A failure that is retried, or a limit that the program has set, is at Warn.
// Other failures are at Error. [Event] lists all of them.
//
// A record has the ctx of its call or of its hold, so a handler finds the id of a trace there.
// Below the level of the handler nothing is built; only its Enabled is called.
//
// # Attributes
//
// Each is present if it is known:
//
//	key         name of the lock, see WithKeyAttribute
//	owner       name of the owner, for locks that nest
//	outcome     of a Lock: acquired, busy, timeout, canceled or error
//	ttl         life of the lease that was requested
//	waited      how long the Lock took
//	attempts    number of attempts
//	contended   another holder had the lock meanwhile, or another call of the Client was before this
//	            one in line; false if resumed
//	quorum      nodes that granted it, and all nodes: "3/5"
//	fence       number of the grant, or of the term
//	holds       holds of the key when this one was granted, this one included, or those in the way,
//	            where several may hold a key
//	room        how many more holds it had room for then, if their number is limited
//	holder      label of the holder in the way, or of one of them: see locker.WithHolder
//	held        how long it was held, or how long the term was
//	left        life left of a lease: the other holder's if the lock is busy, otherwise our own
//	reason      why it was lost: a locker.LostReason; or the reason of an election.End
//	error       the error
//	error_type  the type of the error as one word
//
// None contains a token, which is a secret.
//
// # What it does not log
//
// A Lock with invalid options, or with a ctx that has ended before anything is sent, makes no
// record. Nor does a failed extension that nobody needs any more: Unlock was called, or the ctx
// given to Lock has ended.
//
// With [contract.Wrap] it logs each attempt. Use WithMiddleware or Wrap, not both, or each hold is
// logged twice. Around a node of a quorum, or without a Client, there are no holds. There it logs
// grants, held locks and failures, but no release or loss.
package sloglocker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// New returns middleware that logs to the logger of [WithLogger]. Without a logger it logs nothing
// and costs nothing.
func New(opts ...Option) contract.Middleware {
	l := newLog(opts)
	return func(next locker.Locker) locker.Locker {
		if l.logger == nil {
			return next
		}
		return &logged{Locker: next, log: l, begin: l.begin}
	}
}

// logged is a Locker with a log. Watch has none: its wake-ups promise nothing, and a permanent error
// ends the wait.
type logged struct {
	locker.Locker
	*log
	begin func(context.Context, contract.Lease) (context.Context, func(time.Time, error))
}

// errNoAnswer stands for the answer of a Locker that panics or ends the goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// Acquire logs the outcome, and follows the hold.
func (l *logged) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return l.acquire(ctx, req, l.Locker.Acquire, false)
}

// Transfer logs as Acquire does, with the attribute resumed.
func (l *logged) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	return l.acquire(ctx, req, func(ctx context.Context, req contract.Request) (contract.Lease, error) {
		return l.Locker.Transfer(ctx, from, req)
	}, true)
}

// ask is one question to a Locker: Acquire, or a Transfer.
type ask func(ctx context.Context, req contract.Request) (contract.Lease, error)

func (l *logged) acquire(ctx context.Context, req contract.Request, ask ask, resumed bool) (lease contract.Lease, err error) {
	began := time.Now()
	err = errNoAnswer
	defer func() { l.acquired(ctx, req, resumed, lease, err, began) }() // deferred in case the Locker panics
	lease, err = ask(ctx, req)
	if err == nil {
		contract.CallOf(ctx).OnHold(l.begin)
	}
	return lease, err
}

// Extend logs the outcome, unless the extension is not needed any more or the lease has ended.
func (l *logged) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (extended contract.Lease, err error) {
	err = errNoAnswer
	if contract.CallOf(ctx).Abandoned() {
		l.abandoned(ctx, lease)
	}
	defer func() { l.extended(ctx, lease, ttl, err) }()
	return l.Locker.Extend(ctx, lease, ttl)
}

// Release logs a failure. The Client repeats the release, and the end of the hold logs the result.
func (l *logged) Release(ctx context.Context, lease contract.Lease) (err error) {
	err = errNoAnswer
	defer func() { l.answered(ctx, lease, err) }()
	return l.Locker.Release(ctx, lease)
}

// hold is the context of a lock while it is held. An extension finds the hold in it.
type hold struct {
	context.Context
	log   *log
	lease contract.Lease
	began time.Time
}

func (l *log) begin(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
	h := &hold{Context: ctx, log: l, lease: lease, began: time.Now()}
	h.lease.Token = "" // the log does not need it
	return h, h.end
}

// end logs the end. It is before the begin if another hook took longer than the lease.
func (h *hold) end(at time.Time, cause error) {
	h.log.ended(h, h.lease, cause, max(at.Sub(h.began), 0))
}

type holdKey struct{}

// Value returns the hold itself for holdKey.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// unwanted reports whether the ctx of an extension has ended because nobody needs the lock any
// more. If only the limit for one extension is over, the lock is still needed, and the store is
// slow.
func unwanted(ctx context.Context) bool {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return errors.Is(ctx.Err(), context.Canceled) || h != nil && h.Err() != nil
}
