package locker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// place is where a call stands: outside of its line, behind the head, or as the head. It waits there until
// its next attempt is due.
//
//	outside (a call with an owner, or one that was let out to join the lease of the head that was):
//	   attempt ── held ──► in line; a call that was let out keeps its number
//	behind the head: no attempt, until the call becomes the head or is let out
//	head: attempt ── held ──► Watch ──► attempt ── held ──► sleep until woken, until the holder's lease
//	   ends, or for a jittered cap ──► attempt; after an error, under WithWait, for a random time up to a cap.
//	   It sleeps first if the line knows that the lock is held, or that the store fails
type place struct {
	w          *waiting
	key, owner string
	ttl        time.Duration
	ln         *line // of which it is the head; nil: it is not in a line, or behind the head

	outside  bool   // the next attempt is made at once, outside of the line
	joins    bool   // that attempt joins the lease of the head that was
	err      error  // of that attempt: the line hears of it if the call enters as its head
	number   uint64 // that the call had in the line which let it out; 0: none
	slept    bool   // since its last attempt as the head
	unwanted *grant // was handed over to the call, which left as it became the head
}

// turn waits until the next attempt of the call is due. The action says how that is made, and has a lease
// that was handed over, if there is one: the call may take it in place of the attempt.
func (p *place) turn(ctx, limit context.Context, so *effort) (lineAction, error) {
	for p.ln == nil {
		if p.outside {
			p.outside = false
			return lineAction{joins: p.joins}, nil
		}
		if err := p.enter(ctx, limit, so); err != nil {
			return lineAction{}, err
		}
	}
	for {
		now := p.w.lines.tell(p.ln, &lineEvent{is: onAttempt, slept: p.slept, outlasts: so.wait.limit > 0})
		if p.slept = now.sleep; !now.sleep {
			return now, nil
		}
		if err := p.sleep(ctx, limit, so); err != nil {
			return lineAction{}, err
		}
	}
}

// enter joins the line, and waits until the call is its head or is let out.
func (p *place) enter(ctx, limit context.Context, so *effort) error {
	ln, wt := p.w.lines.enter(p.key, p.owner, p.ttl, p.number)
	if wt == nil {
		if p.ln = ln; p.err != nil {
			p.failed(p.err)
		}
		return nil
	}
	so.queued = true
	p.w.ledger.Done() // Drain does not wait for a call that sleeps
	defer p.w.ledger.Begin()
	select {
	case <-wt.turn:
		if p.outside, p.joins, p.number = wt.joins, wt.joins, wt.number; !wt.joins {
			p.ln = ln
		}
		return nil
	case <-ctx.Done():
	case <-limit.Done():
	}
	held, unwanted, fault := p.w.lines.quit(ln, wt)
	p.unwanted = unwanted
	if held == nil && fault == nil && !wt.joins {
		return p.w.unanswered(ctx, p.key, firstInLine, nil)
	}
	return ended(ctx, p.key, held, fault)
}

// answered takes the error of the attempt; nil: it was granted. It tells whether the wait is over, and with
// which error. named says that the attempt had the name under which the store wakes the line.
func (p *place) answered(named bool, err error, so *effort) (over bool, _ error) {
	if named && isUnknown(err) {
		p.w.lines.tell(p.ln, &lineEvent{is: onUnknown})
	}
	if err == errUnderWay && p.ln != nil { //nolint:errorlint // it is not wrapped
		so.fault = p.w.lines.look(p.ln).fault
	}
	if !so.wait.goesOn(err) {
		return true, err
	}
	so.failed(err)
	if p.ln == nil {
		p.err = err
	} else {
		p.failed(err)
	}
	if so.wait.attempts == 0 || so.attempts < so.wait.attempts {
		return false, nil
	}
	if p.ln != nil {
		if s := p.w.lines.look(p.ln); s.fault == nil {
			err = s.holder(p.key, time.Now()) // with the position in line, and what is left of the lease
		}
	}
	return true, err
}

// failed tells the line that the lock is held, or that the store failed.
func (p *place) failed(err error) {
	e := &lineEvent{is: onFailure, err: err, at: time.Now()}
	if held := asHeld(p.key, err); held != nil {
		if e = (&lineEvent{is: onHeld, held: held}); held.Left > 0 {
			e.until = time.Now().Add(held.Left)
		}
	}
	p.w.lines.tell(p.ln, e)
}

// leave ends the place. If the call is the head, the next waiter becomes the head, and gets a lease that was
// handed over to the call and not taken. leave returns such a lease if nobody is there to take it.
func (p *place) leave(lease *contract.Lease, granted bool) (unwanted *grant) {
	e := &lineEvent{is: onLeave}
	switch {
	case p.ln == nil:
		return p.unwanted
	case granted:
		e = &lineEvent{is: onGrant, until: lease.Expires, shared: shared(*lease), room: lease.Room}
	}
	return p.w.lines.tell(p.ln, e).lease
}

// sleep returns nil when the sleep of the head is over.
func (p *place) sleep(ctx, limit context.Context, so *effort) error {
	lines := p.w.lines
	if !lines.otherSoftware { // a waiter that is woken would win every time
		now := lines.tell(p.ln, &lineEvent{is: onSleep, outlasts: so.wait.limit > 0})
		if now.err != nil {
			return wrap("watch", p.key, now.err)
		}
		if now.beginWatch {
			go p.w.watch(p.ln, p.key, p.ln.watch)
		}
	}
	if so.since.IsZero() {
		so.since = time.Now()
	}
	timer := time.NewTimer(p.pause(so))
	defer timer.Stop()
	p.w.ledger.Done() // Drain does not wait for a call that sleeps
	defer p.w.ledger.Begin()
	for {
		select {
		case <-p.ln.signal:
			now := lines.tell(p.ln, &lineEvent{is: onSignal, outlasts: so.wait.limit > 0})
			if now.err != nil {
				return wrap("watch", p.key, now.err)
			}
			if now.anew {
				timer.Reset(p.pause(so))
			}
			if !now.try {
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
		case <-limit.Done():
		}
		if ctx.Err() != nil || limit.Err() != nil {
			s := lines.look(p.ln)
			return ended(ctx, p.key, s.holder(p.key, time.Now()), s.fault)
		}
		return nil
	}
}

// watch asks the store, once per line, to wake it. When the watch becomes active, that wakes the
// head too, since the lock may have been released before. A store that is slow to answer costs
// wake-ups, not the wait. The ctx ends with the line, which outlives its heads.
func (w *waiting) watch(ln *line, key string, ctx *watchContext) {
	e := &lineEvent{is: onWatched, watch: ctx}
	if e.err = w.Watch(ctx, key, ctx.waiter, func() { w.lines.tell(ln, &lineEvent{is: onWake, watch: ctx}) }); e.err != nil {
		e.is = onWatchFailed
	}
	w.lines.tell(ln, e)
}

// pause is the longest that the head sleeps: the backoff, or until the lease in the way has ended.
func (p *place) pause(so *effort) time.Duration {
	s, now, position := p.w.lines.look(p.ln), time.Now(), 1
	if s.held != nil {
		position = max(s.held.Position, 1)
	}
	var pause time.Duration
	switch rest, backoff := p.w.lines.rest(p.key), so.wait.backoff; {
	case rest > 0:
		return rest
	case backoff != nil:
		pause = backoff(max(so.attempts, 1), rand.Float64())
		if isSilent(s.fault) { // an answer was waited for already
			pause = min(pause, baseFailing)
		}
	case isSilent(s.fault):
		pause = failing(1, rand.Float64())
	case s.fault != nil:
		pause = failing(s.failures, rand.Float64())
	case p.w.lines.otherSoftware:
		return sharing(p.w.lines.inLine(p.ln), rand.Float64())
	case s.polls():
		pause = polling(max(so.attempts, 1), rand.Float64())
	default:
		pause = jitter(watching(now.Sub(so.since), position), rand.Float64())
	}
	switch {
	case s.fault != nil: // a new head does not begin the pause anew
		pause -= now.Sub(s.failedAt)
	case s.held != nil && !s.until.IsZero():
		pause = min(pause, max(s.until.Sub(now), 0)+lookAfterEnd(position))
	}
	return max(pause, time.Millisecond)
}
