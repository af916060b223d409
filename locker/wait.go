package locker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// waiting is inside every Client: its lock waits. See behind for what middleware wraps.
//
//	a turn in line (place.go) ──► attempt ──► granted
//	   ▲                             │
//	   └──────── a new Token ◄───────┴─ held, or an error under WithWait
type waiting struct {
	Locker
	clock     *wallclock.Clock // a test may set it; nil: the clock of the machine
	lines     *lines
	handovers *handovers
	cleanups  *cleanup.Queue
	ledger    *cleanup.Ledger
	server    func() string // that the Locker asks; empty: it does not tell
	slowest   atomic.Int64  // the time.Duration that the slowest of the last answers took
	ends      bool          // the calls of the Locker end by themselves: see package prompt
	attempts  contexts
	releases  contexts
	waits     sync.Pool // of *answerWait
	late      sync.Pool // of *lateRelease

	repeats repeats
}

// lock makes attempts until one is granted, the ctx or the policy of the call ends the wait, or the
// store fails. It leaves the number of attempts in so, and in every error.
func (w *waiting) lock(ctx context.Context, req *contract.Request, so *effort) error {
	return w.concluded(ctx, req, so, w.acquire(ctx, req, so))
}

// resume makes one attempt. It is not repeated, also if the connection had ended while it was idle:
// if the first attempt took over the hold, the next one would find none.
func (w *waiting) resume(ctx context.Context, req *contract.Request, so *effort) error {
	return w.concluded(ctx, req, so, w.attempt(ctx, ctx, req, so))
}

// concluded is the result of a call that ended with err.
func (w *waiting) concluded(ctx context.Context, req *contract.Request, so *effort, err error) error {
	if err == errUnderWay { //nolint:errorlint // it is not wrapped
		err = w.unanswered(ctx, req.Key, lastAttempt, so.fault)
	}
	if err == nil && ctx.Err() != nil { // Client.hold looks whether the lease has ended
		err = w.tooLate(ctx, req, &so.got)
	}
	if err != nil {
		return so.count(wrap("acquire", req.Key, err))
	}
	return nil
}

func (w *waiting) acquire(ctx context.Context, req *contract.Request, so *effort) (err error) {
	p := so.wait
	if p.once {
		return w.insist(ctx, ctx, req, so)
	}
	limit := ctx
	if p.limit > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, p.limit)
		defer cancel()
	}
	// A call with an owner asks before it stands in line: it may be nested, and must not queue behind a call
	// that waits for the same owner.
	at := place{w: w, key: req.Key, owner: req.Owner, ttl: req.TTL, outside: req.Owner != ""}
	granted := false
	defer func() { w.discard(ctx, at.leave(&so.got.Lease, granted), req) }() // also if a Backoff or a Locker panics
	err = w.wait(ctx, limit, &at, req, so)
	granted = err == nil
	return err
}

// wait is the loop of attempts: the place of the call says when the next one is due, and how it is made. Only
// insist repeats one, at once.
func (w *waiting) wait(ctx, limit context.Context, at *place, req *contract.Request, so *effort) error {
	for {
		now, err := at.turn(ctx, limit, so)
		if err != nil {
			return err
		}
		if now.lease != nil && now.lease.suits(req.TTL) && !so.wait.fresh {
			so.hooks, so.got = nil, *now.lease
			return nil
		}
		w.discard(ctx, now.lease, req) // it ended before the head could take it, or is not of the length that the head asks for
		req.Waiter, req.Joins = now.waiter, now.joins
		err = w.insist(ctx, limit, req, so)
		if over, last := at.answered(now.named, err, so); over {
			return last
		}
		req.Token = w.lines.holder.token()
	}
}

// goesOn tells whether another attempt follows one that ended with err.
func (p *waitPolicy) goesOn(err error) bool {
	underWay := err == errUnderWay //nolint:errorlint // it is not wrapped
	return err != nil && !underWay && (errors.Is(err, ErrHeld) || p.outlasts(err))
}

// outlasts tells whether the wait goes on although the store fails with err. It does under
// WithWait, which says for how long.
func (p *waitPolicy) outlasts(err error) bool { return p.limit > 0 && !outcome.Permanent(err) }

// ended is the error of a wait that is over: why, whether the lock was held, and the last error of
// the store since.
func ended(ctx context.Context, key string, held *HeldError, fault error) error {
	return &Error{Op: "lock", Key: key, Err: &waitError{why: why(ctx), held: held, fault: fault}}
}

// unanswered is the error of a wait that is over while an attempt is under way.
func (w *waiting) unanswered(ctx context.Context, key, which string, fault error) error {
	return &Error{Op: "lock", Key: key, Err: &waitError{why: why(ctx), fault: fault, pending: w.by() + which}}
}

// by names what does not answer.
func (w *waiting) by() string {
	switch server := w.server(); {
	case server == "":
		return "the store"
	case strings.HasPrefix(server, "file "): // no server: see package address
		return server
	default:
		return "server " + server
	}
}

// These go on after "no answer from the store".
const (
	lastAttempt = " to the last attempt; its outcome is unknown, and it is cleaned up in the background"
	firstInLine = " to the call of this Client that is first in line"
)

func why(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctxError(ctx)
	}
	return ErrWaitLimit
}
