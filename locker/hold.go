package locker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// hold is a lease that this Client has and keeps alive. Its holder has a Lock.
type hold struct {
	client *Client
	given  context.Context // what Lock was called with: its values go on to extensions and the release
	parent context.Context // of the context of the hold: what OnHold's begin made of given
	terms
	hooks []func(time.Time, error) // what OnHold's begin returned, the last begun last
	entry entry                    // the scheduler's, whose mutex guards it

	mu         sync.Mutex // guards what follows
	lease      grant
	own        ownContext
	extensions extensions // renew.go
	over       over       // ending.go
	unlock     unlocking  // release.go
}

// ownContext is the context of the holder, made when the holder asks for it.
type ownContext struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// hold makes a granted lease a Lock.
func (c *Client) hold(ctx context.Context, so *effort, cfg *config) (*Lock, error) {
	lease := &so.got
	if ctx.Err() != nil {
		c.discard(ctx, lease.Lease, cfg.asks())
		return nil, &Error{Op: "lock", Key: lease.Key, Err: ctxError(ctx)}
	}
	now := time.Now()
	if lease.ended(now) {
		c.discard(ctx, lease.Lease, cfg.asks())
		return nil, &Error{Op: "acquire", Key: lease.Key, Err: errLate}
	}
	h := &hold{client: c, given: ctx, parent: ctx, terms: cfg.terms, lease: *lease}
	begun := false
	defer func() {
		if !begun { // a hook panics: nobody will have the lock
			c.discard(ctx, lease.Lease, cfg.asks())
			h.over.left = time.Until(lease.Expires)
			h.tell(ErrReleased) // the hooks that had begun
		}
	}()
	for _, begin := range slices.Backward(so.hooks) {
		held, end := begin(h.parent, lease.Lease)
		if held != nil {
			h.parent = held
		}
		if end != nil {
			h.hooks = append(h.hooks, end)
		}
	}
	l := &Lock{ctx: holdContext{h}}
	h.extensions.handle = l
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
	return errors.Is(h.over.cause, ErrReleased) && !h.over.stopped
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
	if first = h.over.cause == nil; first {
		h.over.cause, h.over.stopped = cause, stopped
		h.over.left = max(h.lease.Expires.Sub(now), 0)
		cancels = h.extensions.end()
		if lost {
			h.client.handovers.forget(h.lease.Token) // what is left of it is released
			h.plan(now)
			h.over.told = make(chan struct{})
			h.client.ledger.Begin() // before the context ends, until its cleanup is counted: see lossFollows
		}
	}
	cause, cancel := h.over.cause, h.own.cancel
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
	defer close(h.over.told)
	if !h.isReleasedLater() {
		h.releaseLeftover()
	}
	h.client.ledger.Done() // before the hooks: one of them may call Drain
	h.tell(h.over.cause)
}

// checkClock ends the hold if its lease is over, without waiting for the scheduler. If the hold is
// over, its context has ended when checkClock returns, even if the goroutine that ends the hold has
// not ended the context yet.
func (h *hold) checkClock(now time.Time) { _, _ = h.state(now) }

// state is checkClock, and tells why the hold is over; nil: it lasts. The ctx is nil if it was not
// asked for.
func (h *hold) state(now time.Time) (ctx context.Context, over error) {
	h.mu.Lock()
	over, ended := h.over.cause, h.lease.ended(now)
	ctx, cancel := h.own.ctx, h.own.cancel
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
		if over != nil && !h.over.stopped {
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
	if h.own.ctx != nil || h.over.cause != over { //nolint:errorlint // the very same
		return false
	}
	h.own = ownContext{ctx, cancel}
	return true
}

// tell calls the hooks of middleware for the end of the hold, the innermost first.
func (h *hold) tell(cause error) { tell(h.hooks, h.lease.Expires.Add(-h.over.left), cause) }

func tell(ends []func(time.Time, error), at time.Time, cause error) {
	if last := len(ends) - 1; last >= 0 {
		defer tell(ends[:last], at, cause) // also if the last one panics
		ends[last](at, cause)
	}
}
