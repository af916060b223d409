package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// waiting is the Locker inside every Client: its Acquire waits. This file has the only wait loop of the project.
//
//	attempt ── held ──► Watch ──► attempt ── held ──► sleep until woken, until the holder's lease ends,
//	   ▲  │                                           or for a jittered cap
//	   │  └─ an error, under WithWait ──► sleep for a random time up to a cap
//	   └───────────────── a new Token ◄──────────────────────┘
type waiting struct {
	Locker
	lines    *lines
	cleanups *cleanup.Queue
	ledger   *cleanup.Ledger
	server   func() string // that the Locker asks; empty: it does not tell

	handovers handovers
}

// Acquire makes attempts until one is granted, the ctx or the policy in req ends the wait, or the store fails. Whatever it
// returns says how often it has asked.
func (w *waiting) Acquire(ctx context.Context, req Request) (Lease, error) {
	var so effort
	lease, err := w.acquire(ctx, req, &so)
	if err == nil {
		err = w.tooLate(ctx, req, lease)
	}
	if err != nil {
		return Lease{}, so.count(wrap("acquire", req.Key, err))
	}
	lease.Attempts, lease.Contended = so.attempts, so.contended()
	return lease, nil
}

// tooLate gives back what its caller has no use for any more.
func (w *waiting) tooLate(ctx context.Context, req Request, lease Lease) (err error) {
	switch {
	case ctx.Err() != nil:
		err = &Error{Op: "lock", Key: req.Key, Err: ctxError(ctx)}
	case lease.Ended():
		err = errLate
	default:
		return nil
	}
	discard(ctx, w, w.cleanups, w.ledger, w.lines, lease, req.TTL)
	return err
}

// effort is what a call has done so far.
type effort struct {
	attempts int
	queued   bool      // behind another call of this Client
	held     bool      // an attempt was answered so
	unknown  bool      // an attempt has failed, and may have been granted
	since    time.Time // when it began to sleep at the head of its line
}

func (so *effort) contended() bool { return so.queued || so.held }

// failed notes an attempt after which the wait goes on.
func (so *effort) failed(err error) {
	held := errors.Is(err, ErrHeld)
	so.held = so.held || held
	so.unknown = so.unknown || !held && !cleanup.Unsent(err)
}

// count notes the effort in a copy of err, which may be shared.
func (so *effort) count(err error) error {
	switch e := err.(type) { //nolint:errorlint // what is wrapped has a count of its own

	case *Error:
		counted := *e
		counted.Attempts, counted.Contended = so.attempts, so.contended() || errors.Is(e.Err, ErrHeld)
		if over, ours := e.Err.(*waitError); ours { //nolint:errorlint // only the one of this wait
			over.unknown = so.unknown && cleanup.Unsent(over.fault)
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

func (w *waiting) acquire(ctx context.Context, req Request, so *effort) (lease Lease, err error) {
	p := req.wait
	if p == nil || p.once {
		so.attempts++
		lease, err = w.attempt(ctx, nil, req)
		if err == errUnderWay { //nolint:errorlint // it is not wrapped
			err = w.unanswered(ctx, req.Key, lastAttempt, nil)
		}
		return lease, err
	}
	var limit context.Context
	if p.limit > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, p.limit)
		defer cancel()
	}
	var first error
	if req.Owner != "" {
		// A nested request must not queue behind someone who waits for its own owner.
		so.attempts++
		lease, err = w.inTime(ctx, limit, req)
		if err == errUnderWay { //nolint:errorlint // it is not wrapped
			return Lease{}, w.unanswered(ctx, req.Key, lastAttempt, nil)
		}
		if !p.goesOn(err) || p.attempts == 1 {
			return lease, err
		}
		so.failed(err)
		req.Token, first = NewToken(), err
	}
	ln, place := w.lines.enter(req.Key, req.Owner, req.TTL)
	switch {
	case place == nil && first != nil:
		w.lines.note(ln, first)
	case place != nil:
		so.queued = true
		w.ledger.Done() // while it sleeps, Drain does not wait for it
		select {
		case <-place.turn:
			w.ledger.Begin()
		case <-ctx.Done():
			w.ledger.Begin()
			return Lease{}, w.quit(ctx, ln, place, req)
		case <-done(limit):
			w.ledger.Begin()
			return Lease{}, w.quit(ctx, ln, place, req)
		}
	}
	granted := false
	defer func() { w.giveBack(ctx, w.lines.leave(ln, lease, granted), req) }() // also if a Backoff or a Locker panics
	lease, err = w.lead(ctx, limit, ln, req, so)
	granted = err == nil
	return lease, err
}

// quit leaves a line from behind its head.
func (w *waiting) quit(ctx context.Context, ln *line, place *place, req Request) error {
	held, unwanted, fault := w.lines.quit(ln, place)
	w.giveBack(ctx, unwanted, req)
	if held == nil && fault == nil {
		return w.unanswered(ctx, req.Key, " to the call of this Client that is first in line", nil)
	}
	return ended(ctx, req.Key, held, fault)
}

// giveBack releases what was passed on to who has no use for it.
func (w *waiting) giveBack(ctx context.Context, lease *Lease, req Request) {
	if lease != nil {
		discard(ctx, w, w.cleanups, w.ledger, w.lines, *lease, req.TTL)
	}
}

// lead waits at the head of the line. A head that follows another begins by sleeping, since the
// line knows that the lock is held or that the store fails, and so does one with an owner, which
// has made an attempt already.
func (w *waiting) lead(ctx, limit context.Context, ln *line, req Request, so *effort) (Lease, error) {
	p := req.wait
	held, fault := w.lines.last(ln)
	for sleepFirst := held != nil || fault != nil && p.outlasts(fault); ; sleepFirst = true {
		for ; sleepFirst || w.lines.rest(ln.key) > 0; sleepFirst = false {
			w.watch(ln)
			if err := w.sleep(ctx, limit, ln, req, so); err != nil {
				return Lease{}, err
			}
		}
		gift, waiter, free := w.lines.turn(ln)
		if gift != nil && !gift.Ended() {
			return *gift, nil
		}
		w.giveBack(ctx, gift, req) // it has ended on its way to the head, which asks for one of its own
		so.attempts++
		req.Waiter, req.Free = waiter, free
		lease, err := w.inTime(ctx, limit, req)
		if err == errUnderWay { //nolint:errorlint // it is not wrapped
			_, fault := w.lines.last(ln)
			return Lease{}, w.unanswered(ctx, req.Key, lastAttempt, fault)
		}
		if !p.goesOn(err) {
			return lease, err
		}
		so.failed(err)
		w.lines.note(ln, err)
		if p.attempts > 0 && so.attempts >= p.attempts {
			if held, fault := w.lines.last(ln); fault == nil {
				err = held
			}
			return Lease{}, err
		}
		req.Token = NewToken()
	}
}

// inTime is attempt with an error for a lease that had ended when it came: WithWait outlasts that as well.
func (w *waiting) inTime(ctx, limit context.Context, req Request) (Lease, error) {
	lease, err := w.attempt(ctx, limit, req)
	if err == nil && lease.Ended() {
		err = w.tooLate(ctx, req, lease)
	}
	return lease, err
}

// goesOn tells whether an attempt with that error is followed by another one.
func (p *waitPolicy) goesOn(err error) bool {
	return err != nil && (errors.Is(err, ErrHeld) || p.outlasts(err))
}

// outlasts tells whether the wait goes on although the store fails with err. Without WithWait,
// nobody has said for how long.
func (p *waitPolicy) outlasts(err error) bool { return p.limit > 0 && !permanent(err) }

// watch asks the store, once per line, to be woken; not while the store fails, since a wake is not
// heeded then. When the watch is active that is a hint like any other, since the lock may have been
// released before; an error is one as well. A store that is slow to answer costs hints, not the
// wait.
func (w *waiting) watch(ln *line) {
	if ln.watching || w.lines.shared { // a waiter that is woken would win every time
		return
	}
	if _, fault := w.lines.last(ln); fault != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // as long as the line, which outlives its heads
	ln.watching, ln.endWatch, ln.waiter = true, cancel, NewToken()
	go func() {
		if err := w.Watch(ctx, ln.key, ln.waiter, func() { w.lines.woken(ln) }); err != nil {
			w.lines.failed(ln, err)
			return
		}
		w.lines.watched(ln)
	}()
}

// sleep returns nil when it is time for an attempt.
func (w *waiting) sleep(ctx, limit context.Context, ln *line, req Request, so *effort) error {
	if ln.refusal != nil && !req.wait.outlasts(ln.refusal) { // it was told to the head before
		return wrap("watch", req.Key, ln.refusal)
	}
	if so.since.IsZero() {
		so.since = time.Now()
	}
	timer := time.NewTimer(w.pause(ln, req.wait, so))
	defer timer.Stop()
	w.ledger.Done() // Drain does not wait for who sleeps
	defer w.ledger.Begin()
	for {
		select {
		case <-ln.hint:
			woken, failed := w.lines.heard(ln)
			switch {
			case failed == nil:
			case errors.Is(failed, errors.ErrUnsupported):
				ln.polling = true
				timer.Reset(w.pause(ln, req.wait, so))
			case req.wait.outlasts(failed):
				w.lines.unwatch(ln) // and watch again before the next sleep
				timer.Reset(w.pause(ln, req.wait, so))
			default:
				ln.refusal = failed
				return wrap("watch", req.Key, failed)
			}
			if !woken {
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
		case <-done(limit):
		}
		if ctx.Err() != nil || limit != nil && limit.Err() != nil {
			held, fault := w.lines.last(ln)
			return ended(ctx, req.Key, held, fault)
		}
		return nil
	}
}

// pause is the longest that the head sleeps: to the end of the lease in its way, or the backoff. Where the store has a queue
// and others are before us, they look for the end of that lease.
func (w *waiting) pause(ln *line, p *waitPolicy, so *effort) time.Duration {
	held, fault := w.lines.last(ln)
	failures, failedAt := w.lines.failures(ln)
	position := 1
	if held != nil {
		position = held.Position
	}
	var pause time.Duration
	switch rest := w.lines.rest(ln.key); {
	case rest > 0:
		return rest
	case p.backoff != nil:
		pause = p.backoff(max(so.attempts, 1), rand.Float64())
	case fault != nil:
		pause = failing(failures, rand.Float64())
	case w.lines.shared:
		return sharing(rand.Float64())
	case ln.polling || !ln.watching:
		pause = polling(max(so.attempts, 1), rand.Float64())
	default:
		pause = jitter(watching(time.Since(so.since), position), rand.Float64())
	}
	if fault != nil { // a new head does not begin the pause anew
		pause -= time.Since(failedAt)
	}
	if held != nil && fault == nil && !ln.until.IsZero() && position <= lookouts {
		pause = min(pause, held.Left+time.Millisecond) // stores count in milliseconds
	}
	return max(pause, time.Millisecond)
}

// ended says why the wait is over, that the lock was held if that is known, and what the store
// failed with since.
func ended(ctx context.Context, key string, held *HeldError, fault error) error {
	return &Error{Op: "lock", Key: key, Err: &waitError{why: why(ctx), held: held, fault: fault}}
}

// unanswered is ended for a wait in which an attempt is under way.
func (w *waiting) unanswered(ctx context.Context, key, which string, fault error) error {
	by := "the store"
	if server := w.server(); server != "" {
		by = "server " + server
	}
	return &Error{Op: "lock", Key: key, Err: &waitError{why: why(ctx), fault: fault, pending: by + which}}
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
