package locker

import (
	"context"
	"errors"
	"github.com/lockstep-go/lockstep/locker/contract"
	"slices"
	"sync"
	"time"
)

// hold is a lease that this Client has and keeps alive. Its holder has a Lock.
type hold struct {
	client *Client
	given  context.Context          // what Lock was called with: its values go on to extensions and the release
	parent context.Context          // of the context of the hold: what OnHold's begin made of given
	ttl    time.Duration            // that a renewal asks for
	least  *minHold                 // nil: none
	most   time.Duration            // the maximum hold, from the grant; 0: none
	ends   []func(time.Time, error) // what OnHold's begin returned, the last begun last
	entry  entry                    // the scheduler's, whose mutex guards it

	mu         sync.Mutex // guards what follows
	lease      grant
	ctx        context.Context         // made when the holder asks for it
	cancel     context.CancelCauseFunc // of ctx
	over       error                   // why the hold is over; nil while it lasts
	left       time.Duration           // of the lease at that moment
	failed     error                   // of the last extension
	extensions *extendCall             // under way, the last one first
	joined     chan struct{}           // closed when no extension is under way any more; nil if none was at the end
	told       chan struct{}           // closed when middleware knows of the loss; nil: it is not lost
	unlock     unlocking
	// keeps the Lock until the first renewal: a lock held for a moment needs no cleanup by the
	// runtime. See bench/regress/mechanisms.md.
	handle    *Lock
	extend    bool // renew the lease
	stopped   bool // the ctx given to Lock had ended when the hold did
	moved     bool // to another process, see Transfer, or to the next waiter: Unlock sends nothing
	rest      rest // of the lease
	abandoned abandonment
}

// hold makes a granted lease a Lock.
func (c *Client) hold(ctx context.Context, lease grant, cfg *config, hooks []contract.Begin) (*Lock, error) {
	if ctx.Err() != nil {
		c.discard(ctx, lease.Lease, cfg.asks())
		return nil, &Error{Op: "lock", Key: lease.Key, Err: ctxError(ctx)}
	}
	now := time.Now()
	if lease.ended(now) {
		c.discard(ctx, lease.Lease, cfg.asks())
		return nil, &Error{Op: "acquire", Key: lease.Key, Err: errLate}
	}
	h := &hold{client: c, given: ctx, parent: ctx, ttl: cfg.ttl, least: minHoldOf(cfg), extend: cfg.extend, most: cfg.maxHold, lease: lease}
	h.abandoned.stops = cfg.abandonedStop
	begun := false
	defer func() {
		if !begun { // a hook panics: nobody will have the lock
			c.discard(ctx, lease.Lease, cfg.asks())
			h.left = time.Until(lease.Expires)
			h.tell(ErrReleased) // the hooks that had begun
		}
	}()
	for _, begin := range slices.Backward(hooks) {
		held, end := begin(h.parent, lease.Lease)
		if held != nil {
			h.parent = held
		}
		if end != nil {
			h.ends = append(h.ends, end)
		}
	}
	l := &Lock{ctx: holdContext{h}}
	h.handle = l
	c.renewals.add(h, now)
	begun = true
	return l, nil
}

var errLate = errors.New("granted so late that the lease had ended")

// isReleased tells whether Unlock has ended the context of the hold, and not the ctx given to Lock
// before.
func (h *hold) isReleased() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Is(h.over, ErrReleased) && !h.stopped
}

func (h *hold) leaseNow() contract.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease.Lease
}

// end ends the hold at now, with cause, if it is not over.
func (h *hold) end(cause error, now time.Time) (first bool) {
	lost, stopped := !errors.Is(cause, ErrReleased), h.parent.Err() != nil
	var cancels []context.CancelCauseFunc
	h.mu.Lock()
	if first = h.over == nil; first {
		h.over, h.stopped = cause, stopped
		h.left = max(h.lease.Expires.Sub(now), 0)
		if lost {
			h.keepRest(cause, now)
		}
		cancels = h.cancels()
		h.handle = nil
		if lost {
			h.client.handovers.forget(h.lease.Token) // what is left of it is released
			h.told = make(chan struct{})
			h.client.ledger.Begin() // before the context ends, until its cleanup is counted: see lossFollows
		}
	}
	cause, cancel := h.over, h.cancel
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause) // also by a second caller, since the first may not have come that far
	}
	for _, cancel := range cancels {
		cancel(cause)
	}
	return first
}

// lose ends the hold because the lease is over. The scheduler then calls the hooks, and the
// cleanup.
func (h *hold) lose(cause *LostError) {
	if h.end(cause, time.Now()) {
		h.client.renewals.follow(h)
	}
}

// lossFollows is for a hold whose context has ended because it is lost.
func (h *hold) lossFollows() {
	defer close(h.told)
	if !h.windsUp() {
		h.releaseLost()
	}
	h.client.ledger.Done() // before the hooks: one of them may call Drain
	h.tell(h.over)
}

// rest is what becomes of the rest of a lease whose hold is lost. It is decided when the hold ends.
type rest byte

const (
	restNone  rest = iota // there is none: what may be left is released at once
	restKept              // until Unlock or until the end of the lease, whichever is first
	restEnded             // one of the two releases it
)

// keepRest keeps the rest of the lease if the context of the holder ends before the lease: by the
// maximum hold, or by the end of the ctx given to Lock. The context can't tell the holder of this
// loss any more. So the nodes that still have the lease keep it until Unlock, and the work can stop
// before the next holder's begins. If Unlock has not come by the end of the lease, or of the minimum
// hold, what is left is released: under some recipes it does not end by itself. The mutex is held.
func (h *hold) keepRest(cause error, now time.Time) {
	lost, ok := errors.AsType[*LostError](cause)
	if !ok || h.lease.ended(now) || lost.Reason != LostMaxHold && !h.stopped {
		return
	}
	h.rest = restKept
	ends := h.lease.Expires
	if h.least != nil {
		if until := h.lease.Granted.Add(h.least.d); until.After(ends) {
			ends = until
		}
	}
	h.unlock.expiry = time.AfterFunc(ends.Sub(now), func() {
		if h.endRest() {
			h.releaseLeftover()
		}
	})
}

// windsUp tells whether the rest of the lease was kept when the hold was lost.
func (h *hold) windsUp() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rest != restNone
}

// endRest makes the caller the one that releases the rest of the lease, if there is one. There is
// one release, since under some recipes it has no token.
func (h *hold) endRest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rest != restKept {
		return false
	}
	h.rest = restEnded
	h.unlock.expiry.Stop()
	return true
}

// checkClock ends the hold if its lease is over, without waiting for the scheduler. If the hold is
// over, its context has ended when checkClock returns, even if the goroutine that ends the hold has
// not ended the context yet.
func (h *hold) checkClock(now time.Time) { _, _ = h.state(now) }

// state is checkClock, and tells why the hold is over; nil: it lasts. The ctx is nil if it was not
// asked for.
func (h *hold) state(now time.Time) (ctx context.Context, over error) {
	h.mu.Lock()
	over, ended := h.over, h.lease.ended(now)
	ctx, cancel := h.ctx, h.cancel
	h.mu.Unlock()
	switch {
	case over != nil && cancel != nil:
		cancel(over) // the first cause stays
	case over == nil && ended:
		h.lose(h.expired())
		return h.state(now)
	}
	return ctx, over
}

// context is the ctx of the hold. The first call makes it, since many holders do not use it.
func (h *hold) context() context.Context {
	for {
		ctx, over := h.state(time.Now())
		if ctx != nil {
			return ctx
		}
		parent := h.parent
		if over != nil && !h.stopped {
			parent = context.WithoutCancel(parent) // its end came later than that of the hold
		}
		ctx, cancel := context.WithCancelCause(parent)
		if h.adopt(ctx, cancel, over) {
			h.checkClock(time.Now()) // it may be over since
			return ctx
		}
		cancel(nil)
	}
}

// adopt takes ctx as the context of the hold. It does not if another caller has made one; nor if
// the hold has ended since over was read, since ctx may then have ended with the cause of its
// parent.
func (h *hold) adopt(ctx context.Context, cancel context.CancelCauseFunc, over error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx != nil || h.over != over { //nolint:errorlint // the very same
		return false
	}
	h.ctx, h.cancel = ctx, cancel
	return true
}

func (h *hold) expired() *LostError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.abandoned.seen && h.abandoned.stops {
		return &LostError{Key: h.lease.Key, Reason: LostAbandoned}
	}
	lost := &LostError{Key: h.lease.Key, Reason: LostExpired, Err: h.failed}
	if lost.Err == nil && h.extensions != nil {
		lost.Err = errUnanswered
	}
	if lost.Err != nil {
		lost.Reason = LostUnavailable
	}
	return lost
}

var errUnanswered = errors.New("no answer to an extension")

// tell calls the hooks of middleware for the end of the hold, the innermost first.
func (h *hold) tell(cause error) { tell(h.ends, h.lease.Expires.Add(-h.left), cause) }

func tell(ends []func(time.Time, error), at time.Time, cause error) {
	if last := len(ends) - 1; last >= 0 {
		defer tell(ends[:last], at, cause) // also if the last one panics
		ends[last](at, cause)
	}
}
