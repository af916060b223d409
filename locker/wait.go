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
//	attempt ── refused ──► Watch ──► attempt ── refused ──► sleep until woken, until the holder's lease
//	   ▲                                                    ends, or for a jittered cap
//	   └───────────────── a new Token ◄──────────────────────┘
type waiting struct {
	Locker
	lines    *lines
	workers  *workers
	cleanups *cleanup.Group

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
	discard(ctx, w, w.cleanups, w.lines, lease, req.TTL)
	return err
}

// effort is what a call has done so far.
type effort struct {
	attempts int
	queued   bool      // behind another call of this Client
	since    time.Time // when it began to sleep at the head of its line
}

func (so *effort) contended() bool { return so.queued || so.attempts > 1 }

// count notes the effort in a copy of err, which may be shared.
func (so *effort) count(err error) error {
	switch e := err.(type) { //nolint:errorlint // what is wrapped has a count of its own

	case *Error:
		counted := *e
		counted.Attempts, counted.Contended = so.attempts, so.contended() || errors.Is(e.Err, ErrHeld)
		if over, ours := e.Err.(*waitError); ours && over.held != nil { //nolint:errorlint // only the one of this wait
			over.held.Attempts = so.attempts
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
		return w.attempt(ctx, nil, req)
	}
	var limit context.Context
	if p.limit > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, p.limit)
		defer cancel()
	}
	var held *HeldError
	if req.Owner != "" {
		// A nested request must not queue behind someone who waits for its own owner.
		so.attempts++
		lease, err = w.attempt(ctx, limit, req)
		if held = asHeld(req.Key, err); held == nil || p.attempts == 1 {
			return lease, err
		}
		req.Token = NewToken()
	}
	ln, place := w.lines.enter(req.Key, req.Owner, req.TTL)
	switch {
	case place == nil && held != nil:
		w.lines.refused(ln, held)
	case place != nil:
		so.queued = true
		select {
		case <-place.turn:
		case <-ctx.Done():
			return Lease{}, w.quit(ctx, ln, place, req)
		case <-done(limit):
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
	held, unwanted := w.lines.quit(ln, place)
	w.giveBack(ctx, unwanted, req)
	return ended(ctx, req.Key, held)
}

// giveBack releases what was passed on to who has no use for it.
func (w *waiting) giveBack(ctx context.Context, lease *Lease, req Request) {
	if lease != nil {
		discard(ctx, w, w.cleanups, w.lines, *lease, req.TTL)
	}
}

// lead waits at the head of the line. A head who has followed another begins by sleeping, since the line knows that
// the lock is held, and so does one with an owner, who has asked already.
func (w *waiting) lead(ctx, limit context.Context, ln *line, req Request, so *effort) (Lease, error) {
	p := req.wait
	for sleepFirst := w.lines.last(ln) != nil; ; sleepFirst = true {
		if sleepFirst {
			w.watch(ln)
			if err := w.sleep(ctx, limit, ln, req, so); err != nil {
				return Lease{}, err
			}
		}
		gift, waiter, free := w.lines.turn(ln)
		if gift != nil {
			return *gift, nil
		}
		so.attempts++
		req.Waiter, req.Free = waiter, free
		lease, err := w.attempt(ctx, limit, req)
		held := asHeld(req.Key, err)
		if held == nil {
			return lease, err
		}
		w.lines.refused(ln, held)
		if p.attempts > 0 && so.attempts >= p.attempts {
			return Lease{}, w.lines.last(ln)
		}
		req.Token = NewToken()
	}
}

// watch asks the store, once per line, to be woken. When the watch is active that is a hint like any other, since the lock
// may have been released before; an error is one as well. A store that is slow to answer costs hints, not the wait.
func (w *waiting) watch(ln *line) {
	if ln.watching {
		return
	}
	ctx := &watchContext{} // as long as the line, which outlives its heads
	ln.watching, ln.watch, ln.waiter = true, ctx, NewToken()
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
	if ln.refusal != nil { // it was told to the head before
		return wrap("watch", req.Key, ln.refusal)
	}
	if so.since.IsZero() {
		so.since = time.Now()
	}
	timer := time.NewTimer(w.pause(ln, req.wait, so))
	defer timer.Stop()
	for {
		select {
		case <-ln.hint:
			woken, failed := w.lines.heard(ln)
			if failed != nil && !errors.Is(failed, errors.ErrUnsupported) {
				ln.refusal = failed
				return wrap("watch", req.Key, failed)
			}
			if failed != nil {
				ln.polling = true
				timer.Reset(w.pause(ln, req.wait, so))
			}
			if !woken {
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
		case <-done(limit):
		}
		if ctx.Err() != nil || limit != nil && limit.Err() != nil {
			return ended(ctx, req.Key, w.lines.last(ln))
		}
		return nil
	}
}

// pause is the longest that the head sleeps: to the end of the lease in its way, or the backoff. Where the store has a queue
// and others are before us, they look for the end of that lease.
func (w *waiting) pause(ln *line, p *waitPolicy, so *effort) time.Duration {
	held, position := w.lines.last(ln), 1
	if held != nil {
		position = held.Position
	}
	var pause time.Duration
	switch {
	case p.backoff != nil:
		pause = p.backoff(max(so.attempts, 1), rand.Float64())
	case ln.polling:
		pause = polling(max(so.attempts, 1), rand.Float64())
	default:
		pause = jitter(watching(time.Since(so.since), position), rand.Float64())
	}
	if held != nil && !ln.until.IsZero() && position <= lookouts {
		pause = min(pause, held.Left+time.Millisecond) // stores count in milliseconds
	}
	return max(pause, time.Millisecond)
}

// ended says why the wait is over, and that the lock was held if that is known.
func ended(ctx context.Context, key string, held *HeldError) error {
	why := ErrWaitLimit
	if ctx.Err() != nil {
		why = ctxError(ctx)
	}
	return &Error{Op: "lock", Key: key, Err: &waitError{why: why, held: held}}
}

// done is the Done channel of a ctx that may be nil.
func done(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}
