package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Lock is a lock that is held: it is born held, by [Client.Lock] or [Client.TryLock], and never reused. Safe for
// concurrent use.
type Lock struct {
	client *Client
	given  context.Context // what Lock was called with: its values go on to extensions and the release
	ctx    holdContext
	cancel context.CancelCauseFunc

	ttl    time.Duration
	extend bool
	stop   time.Time // end of the maximum hold; zero: none

	ends []func(time.Time, error) // what OnHold's begin returned, the last begun last

	mu         sync.Mutex
	lease      Lease
	over       error         // why the hold is over; nil while it lasts
	overAt     time.Time     // and since when
	failed     error         // what the last extension failed with
	extensions *extendCall   // under way, the last one first
	joined     chan struct{} // closed when no extension is under way any more; nil if none was at the end
	told       chan struct{} // closed when middleware knows of the loss; nil: it is not lost
	unlock     unlocking

	releasing deadlineContext // what the first Release runs under

	// guarded by renewals.mu
	due      time.Time // when the scheduler looks at this lock next
	place    int       // in its heap, −1 outside
	released bool      // it is there for the deadline of its Release alone
	waits    bool      // in the backlog
}

// hold makes a granted lease a Lock.
func (c *Client) hold(ctx context.Context, lease Lease, cfg *config) (*Lock, error) {
	if ctx.Err() != nil {
		c.discard(ctx, lease, cfg.ttl)
		return nil, &Error{Op: "lock", Key: lease.Key, Err: ctxError(ctx)}
	}
	now := time.Now()
	if lease.endedAt(now) {
		c.discard(ctx, lease, cfg.ttl)
		return nil, &Error{Op: "acquire", Key: lease.Key, Err: errLate}
	}
	l := &Lock{client: c, given: ctx, ttl: cfg.ttl, extend: cfg.extend, lease: lease, place: -1}
	begun := false
	defer func() {
		if !begun { // a hook panics: nobody will have the lock
			c.discard(ctx, lease, cfg.ttl)
			l.overAt = time.Now()
			l.tell(ErrReleased) // to those that had begun
		}
	}()
	parent := ctx
	for h := lease.hooks; h != nil; h = h.next {
		held, end := h.begin(parent, lease)
		if held != nil {
			parent = held
		}
		if end != nil {
			l.ends = append(l.ends, end)
		}
	}
	l.ctx.Context, l.cancel = context.WithCancelCause(parent)
	l.ctx.lock = l
	if cfg.maxHold > 0 {
		l.stop = lease.Granted.Add(cfg.maxHold)
	}
	c.renewals.add(l, now)
	begun = true
	return l, nil
}

var errLate = errors.New("granted so late that the lease had ended")

// Context descends from the ctx given to Lock. It ends with cause [ErrReleased] when Unlock is called, and with a cause
// that matches [ErrLost] when the lock is lost: no later than the lease's Expires, by this process's clocks, whatever
// the store or the network does. A process that was paused past that finds it ended at its next look at Err or Done.
//
// When the ctx given to Lock ends, so does this one, and the lock is extended no more; Unlock still releases it.
// What the work does between two looks at its context, or what it has sent already, no lock can stop: see fencing.
func (l *Lock) Context() context.Context { return &l.ctx }

// Lease is what the holder believes now; Expires moves with every extension.
func (l *Lock) Lease() Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// Key is the name of the lock.
func (l *Lock) Key() string { return l.lease.Key }

// Fence is the number of this grant; 0 if the strategy does not number its grants. It is greater than that of every grant of
// the key that was answered before this one was asked for, as long as the store keeps what the strategy counts by: its
// counter or a clock that does not go back (package fenced), or the counters of all but as many nodes as the quorum
// bears (redlock.NewFenced). A resource that keeps the greatest it has seen can refuse a holder who is too late.
func (l *Lock) Fence() uint64 { return l.lease.Fence }

// Extend makes the lease last for ttl from now, if that is longer than it lasts already. The Client extends a lock by
// itself; this is for a longer time at once, or with [WithoutExtension]. The error matches [ErrLost] if the lock is
// lost. Any other means that the outcome is unknown and the lease lasts as long as before at least. Extend returns
// when ctx is done; an answer that comes later still counts.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if err := ValidateTTL(ttl); err != nil {
		return &Error{Op: "extend", Key: l.Key(), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "extend", Key: l.Key(), Err: ctxError(ctx)}
	}
	l.checkClock(time.Now())
	call := &extendCall{l: l, ctx: ctx, ttl: ttl}
	if err := l.begin(call); err != nil {
		return err
	}
	if ctx.Done() == nil {
		call.call()
		return call.err
	}
	call.done = make(chan struct{})
	l.client.workers.start(call)
	select {
	case <-call.done:
		return call.err
	case <-ctx.Done():
		return &Error{Op: "extend", Key: l.Key(), Err: ctxError(ctx)}
	}
}

// Unlock releases the lock and returns when that is done, when ctx ends, or a second after it was called with a ctx
// that was done already; the release then goes on by itself until the lease ends. So `defer l.Unlock(ctx)` is right
// whatever became of ctx. With a ctx that can't end, such as context.Background(), it makes its call on the caller's
// goroutine and can't return before the client library does.
//
// The error matches [ErrLost] if the lock was lost before. Any other means that the store did not say that the lock is
// released. A second Unlock returns the result of the first.
func (l *Lock) Unlock(ctx context.Context) error {
	now := time.Now()
	l.checkClock(now)
	first, done := l.unlock.begin(&l.mu, ctx.Done() != nil)
	if first {
		l.end(ErrReleased, now)
		if ctx.Done() == nil {
			l.release()
		} else {
			l.client.workers.start((*releaseCall)(l))
		}
	}
	if done == nil {
		return l.unlock.err
	}
	if ctx.Err() != nil { // or it is the lock's own, which has just ended
		why := ctxError(ctx)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), doneGrace, why)
		defer cancel()
	}
	select {
	case <-done:
		return l.unlock.err
	case <-ctx.Done():
		return &Error{Op: "release", Key: l.Key(), Err: ctxError(ctx)}
	}
}

const doneGrace = time.Second // for an Unlock with a ctx that is done already

// unlocking is the one release of a Lock, which every Unlock waits for.
type unlocking struct {
	// guarded by Lock.mu
	begun, over bool
	sent        int32         // Releases on their way or answered; next to the bools, for a Lock of 512 bytes
	done        chan struct{} // closed when it is over; nil if nobody has to wait

	err error // settled when it is over
}

// begin tells whether this is the first Unlock, and what to wait for: nil if there is a result already, or if the first
// one is to do the work itself.
func (u *unlocking) begin(mu *sync.Mutex, waits bool) (first bool, done <-chan struct{}) {
	mu.Lock()
	defer mu.Unlock()
	first = !u.begun
	u.begun = true
	if u.done == nil && !u.over && (waits || !first) {
		u.done = make(chan struct{})
	}
	if u.over || first && !waits {
		return first, nil
	}
	return first, u.done
}

// end ends the hold at now, the first time it is called: nothing of it counts afterwards.
func (l *Lock) end(cause error, now time.Time) (first bool) {
	lost := !errors.Is(cause, ErrReleased)
	var cancels []context.CancelCauseFunc
	l.mu.Lock()
	if first = l.over == nil; first {
		l.over, l.overAt = cause, earlier(now, l.lease.Expires)
		cancels = l.giveUp()
		if lost {
			l.told = make(chan struct{})
		}
	}
	cause = l.over
	l.mu.Unlock()
	l.cancel(cause) // also by who comes second, since the first may not have come that far
	for _, cancel := range cancels {
		cancel(cause)
	}
	if first && lost { // what is unlocked stays with the scheduler, for the deadline of its Release
		l.client.renewals.remove(l)
	}
	return first
}

// lose ends the hold because the lease is over, and makes one attempt to remove what may remain of it.
func (l *Lock) lose(cause *LostError) {
	if !l.end(cause, time.Now()) {
		return
	}
	defer func() {
		go func() { // hooks may take their time, and look at the context
			defer close(l.told)
			l.tell(cause)
		}()
	}()
	l.client.workers.exit()
	if !l.windsUp(cause) {
		l.releaseLeftover()
	}
}

// windsUp tells whether the holder was told to stop by something else than the end of the lease: the maximum hold, or the end of
// the ctx given to Lock. Then he can't be told of this loss, and what is left of the lease goes on, on as many nodes as have it,
// until Unlock: so the work can stop before the next one starts.
func (l *Lock) windsUp(lost *LostError) bool {
	return !l.Lease().Ended() && (lost.Reason == LostMaxHold || !errors.Is(context.Cause(l.ctx.Context), lost))
}

// checkClock ends the hold if its time has run out, without waiting for the scheduler. When it returns, a hold that is
// over has an ended context, even if whoever ended it has not come that far.
func (l *Lock) checkClock(now time.Time) {
	l.mu.Lock()
	over, ended := l.over, l.lease.endedAt(now)
	l.mu.Unlock()
	switch {
	case over != nil:
		l.cancel(over) // the first cause stays
	case ended:
		l.lose(l.expired())
	}
}

func (l *Lock) expired() *LostError {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := &LostError{Key: l.lease.Key, Reason: LostExpired, Err: l.failed}
	if lost.Err == nil && l.extensions != nil {
		lost.Err = errUnanswered
	}
	if lost.Err != nil {
		lost.Reason = LostUnavailable
	}
	return lost
}

var errUnanswered = errors.New("no answer to an extension")

// tell calls what middleware left for the end of the hold, the innermost first.
func (l *Lock) tell(cause error) { tell(l.ends, l.overAt, cause) }

func tell(ends []func(time.Time, error), at time.Time, cause error) {
	if last := len(ends) - 1; last >= 0 {
		defer tell(ends[:last], at, cause) // also if the last one panics
		ends[last](at, cause)
	}
}

// String tells of the lease, and whether the hold is over, without the Token.
func (l *Lock) String() string {
	if l.Context().Err() != nil {
		return "lock no longer held, " + l.Lease().String()
	}
	return "lock held, " + l.Lease().String()
}

// GoString hides the Token from %#v.
func (l *Lock) GoString() string { return "&locker.Lock{" + l.String() + "}" }

// Format hides the Token, and what changes meanwhile, from every other verb.
func (l *Lock) Format(s fmt.State, verb rune) { format(s, verb, l) }

// LogValue gives log/slog the lease.
func (l *Lock) LogValue() slog.Value { return l.Lease().LogValue() }
