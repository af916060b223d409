package locker

import (
	"context"
	"errors"
	"runtime"
	"time"
	"weak"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A renewal is due when a third of the lease is over. If it fails, or is not answered, the next one
// follows after a third of what is left, and so on, sooner and sooner. Several may be under way, so
// that one connection that hangs does not cost the lock.
const (
	maxPerLock = 8                    // extensions of one lock under way at once
	tryLimit   = time.Second          // for a renewal at least: one that hangs makes room
	minRetry   = 5 * time.Millisecond // between two renewals of one lock
)

// Extend makes the lease last for ttl from now, if that is longer than it lasts already. The Client
// renews a lock by itself; use Extend for a longer time at once, or with [WithoutRenewal].
//
// The error matches [ErrLost] if the lock is lost, and [ErrReleased] after Unlock. After any other
// error the outcome is unknown, and the lease lasts at least as long as before. Extend returns when
// ctx is done, or when the lease ends that it was to extend; an answer that comes later still counts.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	defer runtime.KeepAlive(l)
	h := l.hold()
	if h.client == nil {
		return &Error{Op: "extend", Err: errNoLock}
	}
	if err := contract.ValidateTTL(ttl); err != nil {
		return &Error{Op: "extend", Key: l.Key(), Err: err}
	}
	if ctx == nil {
		return &Error{Op: "extend", Key: l.Key(), Err: errNilContext}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "extend", Key: l.Key(), Err: ctxError(ctx)}
	}
	h.checkClock(time.Now())
	call := &extendCall{h: h, ctx: ctx, ttl: ttl}
	if err := h.begin(call); err != nil {
		return err
	}
	if ctx.Done() == nil && h.client.inner.ends {
		call.call()
		return call.err
	}
	call.done = make(chan struct{})
	end := time.NewTimer(time.Until(h.leaseNow().Expires) + joinLimit)
	defer end.Stop()
	go call.run()
	select {
	case <-call.done:
		return call.err
	case <-ctx.Done():
		return &Error{Op: "extend", Key: l.Key(), Err: ctxError(ctx)}
	case <-end.C: // the client library ignores the ctx of the call, which ended with the lease
		return &Error{Op: "extend", Key: l.Key(), Err: errUnanswered}
	}
}

// A hold is a task of the scheduler: what follows is what the scheduler calls. See task.

func (h *hold) scheduled() *entry { return &h.entry }

func (h *hold) firstLook(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := h.lease.Expires
	if h.isRenewed() {
		due = h.renewalDue()
		if soonest := now.Add(minRetry); due.Before(soonest) {
			due = soonest
		}
	}
	return h.limit(due, now)
}

func (h *hold) endBy(now time.Time) (end time.Time, lasts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endByClocks(now), h.over.cause == nil
}

func (h *hold) look(now time.Time) verdict {
	unwanted := h.parent.Err() != nil // the ctx given to Lock is over
	h.mu.Lock()
	defer h.mu.Unlock()
	v := verdict{end: h.limit(h.lease.Expires, now), hung: h.extensions.hang()}
	switch {
	case h.over.cause != nil: // it is about to leave the scheduler
		v.what, v.due = actEnded, now.Add(lookInterval)
		return v
	case h.lease.ended(now):
		v.what = actExpire
	case h.maxHold > 0 && !now.Before(h.lease.Granted.Add(h.maxHold)):
		v.what = actStop
	case !h.isRenewed() || unwanted:
		v.due = h.lease.Expires
	case now.Before(h.renewalDue()):
		v.due = h.renewalDue()
	case h.extensions.underWay() >= maxPerLock:
		v.due = now.Add(minRetry)
	default:
		v.what, v.due = actRenew, now.Add(max(h.lease.Expires.Sub(now)/3, minRetry))
	}
	if v.what == actExpire || v.what == actStop {
		v.due = now.Add(lookInterval) // stop makes it leave the scheduler
	} else if v.due = h.limit(v.due, now); !v.due.After(now) {
		v.due = now.Add(time.Millisecond) // not at once: a tick looks until nothing is due
	}
	return v
}

func (h *hold) stop(v verdict, now time.Time) (first bool) {
	switch v.what {
	case actExpire:
		return h.end(h.expired(), now)
	case actStop:
		return h.end(&LostError{Key: h.lease.Key, Reason: LostMaxHold}, now)
	}
	h.checkClock(now) // ends the context, as the goroutine that has ended the hold may not have yet
	return false
}

func (h *hold) renew(r *renewal) {
	h.mu.Lock()
	handle := h.extensions.handle
	h.extensions.handle = nil
	// On a new connection it takes several round trips. Three others may be sent beside it meanwhile.
	limit := max(h.lease.Expires.Sub(r.began)*3/4, tryLimit)
	h.mu.Unlock()
	if r.most > 0 {
		limit = min(limit, r.most)
	}
	if handle != nil {
		runtime.AddCleanup(handle, abandoned, weak.Make(h)) // h itself may lead to the Lock: then neither would ever be garbage
	}
	c := &extendCall{h: h, ctx: context.WithoutCancel(h.parent), ttl: h.ttl, limit: limit, renewal: r}
	if h.begin(c) != nil {
		h.client.renewals.renewed(r, false)
		return
	}
	go c.run()
}

// follow is for a hold that is lost, or whose release has had no answer.
func (h *hold) follow() {
	if h.over.cause == ErrReleased { //nolint:errorlint // it is set as it is
		h.giveUpRelease()
		return
	}
	h.lossFollows()
}

// The mutex of the hold is held in the next three.

// renewalDue is when a third of the TTL is over, or as much later as the lease was made longer. It
// is earlier by up to a hundredth of the TTL, so that many locks are renewed at once and share
// round trips. See bench/regress/mechanisms.md.
func (h *hold) renewalDue() time.Time {
	due := h.lease.Expires.Add(-h.ttl * 2 / 3)
	return due.Add(-(due.Sub(h.client.renewals.origin) % (h.ttl / 100)))
}

// limit is due, or the end of the hold if that is earlier.
func (h *hold) limit(due, now time.Time) time.Time {
	due = earlier(due, h.endByClocks(now))
	if h.maxHold > 0 {
		due = earlier(due, h.lease.Granted.Add(h.maxHold))
	}
	return due
}

// endByClocks is when the lease ends by the clock that is first, as a time of the monotonic clock.
func (h *hold) endByClocks(now time.Time) time.Time {
	if set := h.lease.setSince(now); set >= clockTolerance {
		return h.lease.Expires.Add(-set)
	}
	return h.lease.Expires
}

// expired is the loss of a hold whose lease has ended.
func (h *hold) expired() *LostError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.extensions.abandoned.seen && h.abandonedStop {
		return &LostError{Key: h.lease.Key, Reason: LostAbandoned}
	}
	lost := &LostError{Key: h.lease.Key, Reason: LostExpired, Err: h.extensions.failed}
	if lost.Err == nil && h.extensions.first != nil {
		lost.Err = errUnanswered
	}
	if lost.Err != nil {
		lost.Reason = LostUnavailable
	}
	return lost
}

var errUnanswered = errors.New("no answer to an extension")

// extensions are the calls of Locker.Extend of a hold. The mutex of the hold guards them.
type extensions struct {
	first     *extendCall   // under way, the last one first
	joined    chan struct{} // closed when none is under way any more; nil if none was at the end of the hold
	failed    error         // of the last one, or of a release
	until     uint32        // Unix time in seconds: the store may keep the key for one of them until then
	abandoned abandonment
	hung      bool // a renewal had no answer within its limit, and none was answered since
	// keeps the Lock until the first renewal: a lock held for a moment needs no cleanup by the
	// runtime. See bench/regress/mechanisms.md.
	handle *Lock
}

// extendCall is one call of Locker.Extend: a renewal, or by hand. The scheduler waits for no
// renewal, and the caller of Lock.Extend may leave. If the call fails then, the next one or the
// loss says so.
type extendCall struct {
	h        *hold
	ctx      context.Context
	ttl      time.Duration
	limit    time.Duration      // for a renewal; 0: by hand
	*renewal                    // nil: by hand
	wall     *wallclock.Reading // before it
	err      error
	done     chan struct{} // closed when it is over; nil: nobody waits

	// guarded by the mutex of the hold
	cancel context.CancelCauseFunc // nil before it runs
	next   *extendCall             // of the hold's calls under way
}

// begin counts c in, unless the hold is over.
func (h *hold) begin(c *extendCall) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.cause == ErrReleased { //nolint:errorlint // any other error names its key itself
		return &Error{Op: "extend", Key: h.lease.Key, Err: h.over.cause}
	}
	if h.over.cause != nil {
		return h.over.cause
	}
	h.extensions.first, c.next = c, h.extensions.first
	return nil
}

// run is call on a goroutine of its own.
func (c *extendCall) run() {
	defer c.finished() // also if the Locker ends the goroutine
	stack.Grow()
	c.call()
}

func (c *extendCall) finished() {
	if c.done != nil {
		close(c.done)
	}
	if c.limit > 0 {
		c.h.client.renewals.renewed(c.renewal, c.err == nil)
	}
}

// call extends the lease to ttl from now and takes the answer, whenever it comes. The hold has
// counted it in.
func (c *extendCall) call() {
	h, before := c.h, c.h.leaseNow()
	c.wall = h.client.inner.clock.Read()
	end := before.Expires
	if c.limit > 0 {
		end = earlier(time.Now().Add(c.limit), end)
	}
	// The end of the hold cancels the call, with its cause. A ctx below that of the hold would be
	// cancelled as well, but it leaves a map and a channel in each hold.
	hold, cancelBy := context.WithCancelCause(c.ctx)
	ctx, cancel := context.WithDeadline(hold, end)
	after, err := before, errNoAnswer
	defer func() { // also if the Locker ends the goroutine
		cancel()
		cancelBy(nil)
		c.err = h.extended(c, before, after, err)
	}()
	if h.goesOn(c, cancelBy) {
		if c.limit > 0 && h.tellAbandoned() {
			ctx = calls.With(ctx, calls.Abandoned)
		}
		after, err = h.extendKeeping(&countedContext{ctx, &h.client.ledger}, before, c.ttl)
		if !outcome.Unsent(err) && !errors.Is(err, ErrLost) {
			h.mayLast(c.ttl)
		}
	}
}

// mayLast notes that the store may keep the key for ttl from now.
func (h *hold) mayLast(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.extensions.until = max(h.extensions.until, uint32(fullSecond(time.Now().Add(ttl)).Unix()))
}

// goesOn tells whether the hold is not over, and notes what cancels c at its end.
func (h *hold) goesOn(c *extendCall, cancel context.CancelCauseFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.cancel = cancel
	return h.over.cause == nil
}

// errOutdated replaces a loss that a Locker concludes from a lease which another call has extended
// since.
var errOutdated = errors.New("answered for a lease that has been extended since")

// extended takes the answer to c, which has extended before.
func (h *hold) extended(c *extendCall, before, after contract.Lease, err error) error {
	var lost *LostError
	isLost, unwanted := errors.Is(err, ErrLost), h.parent.Err() != nil
	if isLost && !errors.As(err, &lost) {
		lost = &LostError{Key: before.Key, Reason: LostStolen}
	}
	h.mu.Lock()
	moved, ended := false, h.over.cause == nil && h.lease.ended(time.Now())
	switch {
	case h.over.cause != nil || ended: // what is over stays over; a lease that is lost is not handed over
		if h.over.cause != nil && isLost && lost.Reason != LostExpired && h.unlock.sent == 0 {
			h.extensions.failed = err
		}
	case isLost && lost.Reason == LostExpired && h.lease.Expires.After(before.Expires):
		isLost, err = false, errOutdated
	case err != nil:
		if c.limit > 0 && time.Since(c.began) >= c.limit {
			h.extensions.hung = true
		}
		if isLost || !unwanted && !outcome.Permanent(h.extensions.failed) { // a permanent error says more than what follows it
			h.extensions.failed = err
		}
	default:
		h.extensions.failed, h.extensions.hung = nil, false
		if moved = after.Expires.After(h.lease.Expires); moved {
			h.lease.Expires, h.lease.wall = after.Expires, c.wall
		}
	}
	h.extensions.countOut(c)
	over := h.over.cause
	h.mu.Unlock()

	switch {
	case over != nil:
		return over
	case ended:
		lost = h.expired()
		h.lose(lost)
		return lost
	case moved:
		h.client.renewals.reschedule(h)
	case isLost:
		h.lose(lost)
	}
	return wrap("extend", before.Key, err)
}

// The mutex of the hold is held in what follows.

// end returns what cancels the calls under way. The caller must unlock the mutex before it calls
// them: an extension may run below the context of the hold, which locks it.
func (e *extensions) end() (cancels []context.CancelCauseFunc) {
	e.handle = nil
	if e.first != nil {
		e.joined = make(chan struct{})
	}
	for c := e.first; c != nil; c = c.next {
		if c.cancel != nil {
			cancels = append(cancels, c.cancel)
		}
	}
	return cancels
}

func (e *extensions) countOut(c *extendCall) {
	at := &e.first
	for *at != c {
		at = &(*at).next
	}
	*at = c.next
	if e.joined != nil && e.first == nil {
		close(e.joined)
	}
}

func (e *extensions) underWay() (n int) {
	for c := e.first; c != nil; c = c.next {
		n++
	}
	return n
}

// hang tells whether the last renewal had no answer, or has none yet.
func (e *extensions) hang() bool {
	for c := e.first; c != nil; c = c.next {
		if c.limit > 0 {
			return true
		}
	}
	return e.hung
}
