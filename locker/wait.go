package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// waiting is the Locker inside every Client: its Acquire waits. This file has the only wait loop of
// the project, in waitAtHead.
//
//	attempt ── held ──► Watch ──► attempt ── held ──► sleep until woken, until the holder's lease ends,
//	   ▲  │                                           or for a jittered cap
//	   │  └─ an error, under WithWait ──► sleep for a random time up to a cap
//	   └───────────────── a new Token ◄──────────────────────┘
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
	shared    atomic.Pointer[sharedContext]
	timers    sync.Pool

	repeats repeats
}

// Acquire is lock for a call that has come through middleware.
func (w *waiting) Acquire(ctx context.Context, req contract.Request) (lease contract.Lease, err error) {
	c, so, err := callOf(ctx, req.Key)
	if err != nil {
		return contract.Lease{}, err
	}
	if lease, err = w.lock(ctx, req, &so); err == nil {
		c.granted(&so)
	}
	return lease, err
}

// Transfer is resume for a call that has come through middleware.
func (w *waiting) Transfer(ctx context.Context, from string, req contract.Request) (lease contract.Lease, err error) {
	c, so, err := callOf(ctx, req.Key)
	if err != nil {
		return contract.Lease{}, err
	}
	if lease, err = w.resume(ctx, from, req, &so); err == nil {
		c.granted(&so)
	}
	return lease, err
}

// lock makes attempts until one is granted, the ctx or the policy of the call ends the wait, or the
// store fails. It leaves the number of attempts in so, and in every error.
func (w *waiting) lock(ctx context.Context, req contract.Request, so *effort) (contract.Lease, error) {
	lease, err := w.acquire(ctx, req, so)
	return w.concluded(ctx, req, so, lease, err)
}

// resume makes one attempt. It is not repeated, also if the connection had ended while it was idle:
// if the first attempt took over the hold, the next one would find none.
func (w *waiting) resume(ctx context.Context, from string, req contract.Request, so *effort) (contract.Lease, error) {
	lease, err := w.attempt(ctx, nil, func(l Locker, ctx context.Context, req contract.Request) (contract.Lease, error) {
		return l.Transfer(ctx, from, req)
	}, req, so)
	return w.concluded(ctx, req, so, lease, err)
}

// concluded is the result of a call that ended with lease and err.
func (w *waiting) concluded(ctx context.Context, req contract.Request, so *effort, lease contract.Lease, err error) (contract.Lease, error) {
	if err == errUnderWay { //nolint:errorlint // it is not wrapped
		err = w.unanswered(ctx, req.Key, lastAttempt, so.fault)
	}
	if err == nil {
		err = w.tooLate(ctx, req, &grant{lease, so.wall})
	}
	if err != nil {
		return contract.Lease{}, so.count(wrap("acquire", req.Key, err))
	}
	return lease, nil
}

func (w *waiting) acquire(ctx context.Context, req contract.Request, so *effort) (lease contract.Lease, err error) {
	p := so.wait
	if p.once {
		return w.insist(ctx, nil, req, so)
	}
	var limit context.Context
	if p.limit > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, p.limit)
		defer cancel()
	}
	var ln *line
	var place uint64 // in the line; 0: at its end
	// A nested request must not queue behind a call that waits for the same owner.
	for beside := req.Owner != ""; ; beside = true {
		if beside {
			var over bool
			if lease, over, err = w.beside(ctx, limit, &req, so); over {
				return lease, err
			}
		}
		var wt *waiter
		if ln, wt = w.lines.enter(req.Key, req.Owner, req.TTL, place); wt == nil { // it is the head
			if beside {
				w.lines.answered(ln, err)
			}
			break
		}
		if err := w.waitBehind(ctx, limit, ln, wt, req, so); err != nil {
			return contract.Lease{}, err
		}
		if !wt.joins { // it is the head
			break
		}
		req.Joins, place = true, wt.place
	}
	granted := false
	defer func() { w.discard(ctx, w.lines.leave(ln, lease, granted), req) }() // also if a Backoff or a Locker panics
	lease, err = w.waitAtHead(ctx, limit, ln, req, so)
	granted = err == nil
	return lease, err
}

// beside makes an attempt outside the line. If that ends the call, over is true; otherwise the
// request has a new Token.
func (w *waiting) beside(ctx, limit context.Context, req *contract.Request, so *effort) (lease contract.Lease, over bool, err error) {
	p := so.wait
	lease, err = w.insist(ctx, limit, *req, so)
	if !p.goesOn(err) || p.attempts > 0 && so.attempts >= p.attempts {
		return lease, true, err
	}
	so.failed(err)
	req.Token = w.lines.holder.token()
	return contract.Lease{}, false, err
}

// waitBehind waits behind the head until the turn of wt.
func (w *waiting) waitBehind(ctx, limit context.Context, ln *line, wt *waiter, req contract.Request, so *effort) error {
	so.queued = true
	w.ledger.Done() // Drain does not wait for a call that sleeps
	defer w.ledger.Begin()
	select {
	case <-wt.turn:
		return nil
	case <-ctx.Done():
	case <-done(limit):
	}
	held, unwanted, fault := w.lines.quit(ln, wt)
	w.discard(ctx, unwanted, req)
	if held == nil && fault == nil && !wt.joins {
		return w.unanswered(ctx, req.Key, " to the call of this Client that is first in line", nil)
	}
	return ended(ctx, req.Key, held, fault)
}

// waitAtHead waits at the head of the line. If the line knows that the lock is held or that the store
// fails, the head sleeps before its first attempt. That is so for a head that follows another, and
// for one with an owner, which has made an attempt already.
func (w *waiting) waitAtHead(ctx, limit context.Context, ln *line, req contract.Request, so *effort) (contract.Lease, error) {
	p := so.wait
	s := w.lines.look(ln)
	for sleepFirst := s.held != nil || s.fault != nil && p.outlasts(s.fault); ; sleepFirst = true {
		for ; sleepFirst || w.lines.rest(ln.key) > 0; sleepFirst = false {
			if err := w.sleep(ctx, limit, ln, req, so); err != nil {
				return contract.Lease{}, err
			}
		}
		now := w.lines.tell(ln, lineEvent{is: onAttempt})
		if now.lease != nil && !now.lease.ended(time.Now()) && !p.fresh {
			so.hooks, so.wall = nil, now.lease.wall
			return now.lease.Lease, nil
		}
		w.discard(ctx, now.lease, req) // it ended before the head could take it, or is not long enough
		req.Waiter, req.Joins = "", now.joins
		if now.named {
			req.Waiter = ln.watch.waiter
		}
		lease, err := w.insist(ctx, limit, req, so)
		if now.named && isUnknown(err) {
			w.lines.tell(ln, lineEvent{is: onUnknown})
		}
		if err == errUnderWay { //nolint:errorlint // it is not wrapped
			so.fault = w.lines.look(ln).fault
		}
		if !p.goesOn(err) {
			return lease, err
		}
		so.failed(err)
		w.lines.answered(ln, err)
		if p.attempts > 0 && so.attempts >= p.attempts {
			if s := w.lines.look(ln); s.fault == nil {
				err = s.holder(ln.key, time.Now())
			}
			return contract.Lease{}, err
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

// sleep returns nil when it is time for an attempt.
func (w *waiting) sleep(ctx, limit context.Context, ln *line, req contract.Request, so *effort) error {
	if !w.lines.shared { // a waiter that is woken would win every time
		now := w.lines.tell(ln, lineEvent{is: onSleep, outlasts: so.wait.limit > 0})
		if now.err != nil {
			return wrap("watch", req.Key, now.err)
		}
		if now.beginWatch {
			go w.watch(ln, ln.key, ln.watch)
		}
	}
	if so.since.IsZero() {
		so.since = time.Now()
	}
	timer := time.NewTimer(w.pause(ln, so))
	defer timer.Stop()
	w.ledger.Done() // Drain does not wait for a call that sleeps
	defer w.ledger.Begin()
	for {
		select {
		case <-ln.signal:
			now := w.lines.tell(ln, lineEvent{is: onSignal, outlasts: so.wait.limit > 0})
			if now.err != nil {
				return wrap("watch", req.Key, now.err)
			}
			if now.anew {
				timer.Reset(w.pause(ln, so))
			}
			if !now.try {
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
		case <-done(limit):
		}
		if ctx.Err() != nil || limit != nil && limit.Err() != nil {
			s := w.lines.look(ln)
			return ended(ctx, req.Key, s.holder(ln.key, time.Now()), s.fault)
		}
		return nil
	}
}

// watch asks the store, once per line, to wake it. When the watch becomes active, that wakes the
// head too, since the lock may have been released before. A store that is slow to answer costs
// wake-ups, not the wait. The ctx ends with the line, which outlives its heads.
func (w *waiting) watch(ln *line, key string, ctx *watchContext) {
	e := lineEvent{is: onWatched, watch: ctx}
	if e.err = w.Watch(ctx, key, ctx.waiter, func() { w.lines.tell(ln, lineEvent{is: onWake, watch: ctx}) }); e.err != nil {
		e.is = onWatchFailed
	}
	w.lines.tell(ln, e)
}

// pause is the longest that the head sleeps: the backoff, or until the lease in the way ends. Only
// the first few in the queue of a store look for the end of that lease.
func (w *waiting) pause(ln *line, so *effort) time.Duration {
	s, p, now, position := w.lines.look(ln), so.wait, time.Now(), 1
	if s.held != nil {
		position = max(s.held.Position, 1)
	}
	var pause time.Duration
	switch rest := w.lines.rest(ln.key); {
	case rest > 0:
		return rest
	case p.backoff != nil:
		pause = p.backoff(max(so.attempts, 1), rand.Float64())
		if isSilent(s.fault) { // an answer was waited for already
			pause = min(pause, baseFailing)
		}
	case isSilent(s.fault):
		pause = failing(1, rand.Float64())
	case s.fault != nil:
		pause = failing(s.failures, rand.Float64())
	case w.lines.shared:
		return sharing(w.lines.inLine(ln), rand.Float64())
	case s.polls():
		pause = polling(max(so.attempts, 1), rand.Float64())
	default:
		pause = jitter(watching(now.Sub(so.since), position), rand.Float64())
	}
	switch {
	case s.fault != nil: // a new head does not begin the pause anew
		pause -= now.Sub(s.failedAt)
	case s.held != nil && !s.until.IsZero() && position <= lookouts:
		pause = min(pause, max(s.until.Sub(now), 0)+2*time.Millisecond) // stores count in milliseconds, and Redis keeps a key for one more
	}
	return max(pause, time.Millisecond)
}

// effort is what a call has done so far.
type effort struct {
	scoped   bool
	hooks    []contract.Begin // of middleware around the last attempt
	wait     *waitPolicy
	wall     *wallclock.Reading // before the last attempt
	attempts int
	queued   bool      // behind another call of this Client
	held     bool      // the answer to an attempt
	unknown  bool      // the outcome of an attempt
	since    time.Time // when it began to sleep at the head of its line
	silent   int       // attempts that had no answer, since the store last answered
	fault    error     // of the line, when an attempt of its head had no answer
	left     []*attempt
}

// tooManyHang tells whether another attempt must wait until one that the call has left returns.
func (so *effort) tooManyHang() bool {
	so.left = slices.DeleteFunc(so.left, func(a *attempt) bool { return !a.hangs() })
	return len(so.left) >= maxHanging
}

func (so *effort) contended() bool { return so.queued || so.held }

// failed notes the error of an attempt after which the wait goes on.
func (so *effort) failed(err error) {
	held := errors.Is(err, ErrHeld)
	so.held = so.held || held
	so.unknown = so.unknown || isUnknown(err)
	if held {
		so.silent = 0
	}
}

// count notes the effort in a copy of err, since others may have err as well.
func (so *effort) count(err error) error {
	switch e := err.(type) { //nolint:errorlint // what is wrapped has a count of its own

	case *Error:
		counted := *e
		counted.Attempts, counted.Contended = so.attempts, so.contended() || errors.Is(e.Err, ErrHeld)
		if over, ours := e.Err.(*waitError); ours { //nolint:errorlint // only the one of this wait
			over.unknown = so.unknown && outcome.Unsent(over.fault)
			if over.held != nil {
				over.held.Attempts = so.attempts
			}
		}
		return &counted
	case *HeldError:
		counted := *e
		counted.Attempts = so.attempts
		return &counted
	}
	return err
}

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

// isUnknown tells whether an attempt that ended with err may still be granted.
func isUnknown(err error) bool {
	return err != nil && !errors.Is(err, ErrHeld) && !outcome.Permanent(err) && !outcome.Unsent(err)
}

const lastAttempt = " to the last attempt; its outcome is unknown, and it is cleaned up in the background"

func why(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctxError(ctx)
	}
	return ErrWaitLimit
}

// done is the Done channel of a ctx that may be nil.
func done(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}
