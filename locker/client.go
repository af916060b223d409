package locker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Client is to a [Locker] what http.Client is to http.RoundTripper. It waits for a lock that is
// held, renews the lease of a lock that its caller holds, and tells the holder when the lock is
// lost. Safe for concurrent use.
//
// It needs no Close: it runs nothing while no lock is held, waited for, or kept ([WithMinHold]). After a lock that was
// waited for, it watches the store for 200 ms more.
type Client struct {
	locker    Locker // inner inside its middleware
	inner     *waiting
	defaults  config
	once      waitPolicy
	lines     lines
	handovers handovers
	cleanups  *cleanup.Queue
	ledger    cleanup.Ledger // of attempts, releases and cleanups without an answer: see Drain
	renewals  scheduler
	// Releases that take longer than lateAfter. While there are some, Unlock with a ctx that
	// can't end calls on another goroutine, so that it returns after 3 s whatever the library does
	hung atomic.Int32
}

// New returns a Client that takes its locks from l. If an option is wrong, every Lock fails with an
// error that names it.
func New(l Locker, opts ...ClientOption) *Client {
	c := &Client{defaults: configure(opts), cleanups: cleanup.New(false)}
	c.defaults.wait.ttl = c.defaults.ttl
	c.once = waitPolicy{ttl: c.defaults.ttl, once: true}
	if l == nil {
		c.defaults.refuse(outcome.Invalidf("locker is nil"))
	}
	if c.defaults.otherSoftware && c.defaults.handover > 0 {
		c.defaults.refuse(outcome.Invalidf("locker.WithOtherSoftware does not go with locker.WithMaxHandovers, which passes others by"))
	}
	c.lines.otherSoftware, c.lines.holder = c.defaults.otherSoftware, c.defaults.holder
	c.handovers.most, c.handovers.lines = c.defaults.handover, &c.lines
	w := &waiting{Locker: l, clock: wallclock.Of(l), lines: &c.lines, handovers: &c.handovers, cleanups: c.cleanups, ledger: &c.ledger}
	w.server, w.ends = func() string { return address.Of(l) }, prompt.Of(l)
	c.inner = w
	c.locker = w
	if len(c.defaults.middleware) > 0 {
		if c.locker = contract.Wrap(behind{w}, c.defaults.middleware...); c.locker == nil {
			c.defaults.refuse(outcome.Invalidf("middleware returned a nil Locker"))
			c.locker = w
		}
	}
	c.renewals.wall = w.clock
	return c
}

// Lock waits until the lock is free and returns it held. Earlier calls for the same key (and owner)
// on this Client come first.
//
// When ctx ends first, Lock returns at once. The error matches the error of ctx, and [ErrHeld] as
// well if the lock was held when the store last answered. [WithWait] limits the wait alone, and
// lets it outlast an outage: an attempt that fails is then repeated, unless the error is permanent.
// Without it, every error ends the wait. What an attempt with an unknown outcome may have left in
// the store is removed in the background.
//
// An attempt that has no answer by the end of the TTL ends then, or up to two seconds later, whatever ctx
// is: a grant would come too late. Its outcome is unknown, and the ErrorType is "timeout".
//
// If ctx descends from the Context of a Lock that this Client holds on the same key, and the
// strategy admits no further hold, Lock fails at once: it would wait for itself. Use that Lock, or
// package reentrant with the same owner ([ContextWithOwner]). A ctx that takes only the values of
// the hold ([context.WithoutCancel]) and can end by itself fails too, since Lock can't tell it from
// the other; start work that is to outlive the hold with a ctx from outside it. The error is
// permanent, its ErrorType is "deadlock".
func (c *Client) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.lock(ctx, key, opts, call{})
}

// TryLock makes one attempt and does not wait. A store that does not answer ends it with ctx, or
// after the TTL. The error matches [ErrHeld] if another holder has the lock, also where ctx descends
// from that hold. Options about waiting are bad input here.
func (c *Client) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.lock(ctx, key, opts, call{once: true})
}

// Do takes the lock as Lock does, calls work, and releases the lock when work returns, panics or
// calls runtime.Goexit. The ctx of work ends when the lock is lost.
//
// The error answers these questions:
//   - It matches [ErrLost]: the lock was not held to the end of the work. If work only says that
//     its ctx was cancelled, which the loss did, the error is the loss alone.
//   - It has an [*Error] whose Op is "release": the store did not confirm the release. The lock is
//     free when its lease ends. It does not say that the work is done.
//   - It matches [ErrHeld]: look at [HeldError.Key]. It is key if work was not called. It is
//     another key if work took a lock of its own and returned that error.
//
// If work and the release both fail, the error wraps both, the error of work first.
func (c *Client) Do(ctx context.Context, key string, work func(ctx context.Context, l *Lock) error, opts ...Option) (err error) {
	if work == nil {
		return &Error{Op: "lock", Key: key, Err: outcome.Invalidf("work is nil")}
	}
	l, err := c.lock(ctx, key, opts, call{scoped: true})
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			l.hold().workFailed()
		}
		err = both(l, err, l.Unlock(ctx))
	}()
	err = work(l.Context(), l)
	done = err == nil
	return err
}

// both joins the error of the work and the error of the release of l.
func both(l *Lock, work, release error) error {
	switch {
	case release == nil || errors.Is(work, release):
		return work
	case work == nil, isCancelled(work) && errors.Is(context.Cause(l.Context()), ErrLost):
		return release
	}
	return fmt.Errorf("%w; %w", work, release)
}

// isCancelled tells whether err says only that a ctx was cancelled, and joins no other error to that. A
// release that was not confirmed is more than that.
func isCancelled(err error) bool {
	if _, more := errors.AsType[*unconfirmedError](err); more {
		return false
	}
	for {
		if _, joins := err.(interface{ Unwrap() []error }); joins {
			return false
		}
		below := errors.Unwrap(err)
		if below == nil {
			return errors.Is(err, context.Canceled)
		}
		err = below
	}
}

// call is how Lock, TryLock, Do, DoAll and Resume differ.
type call struct {
	once, scoped bool
	from         string          // the token of a ticket; empty: none
	given        context.Context // to DoAll; nil: another call
}

func (c *Client) lock(ctx context.Context, key string, opts []Option, how call) (*Lock, error) {
	if c == nil || c.locker == nil {
		return nil, &Error{Op: "lock", Key: key, Err: errNoClient}
	}
	cfg, wait := &c.defaults, &c.defaults.wait
	if how.once {
		wait = &c.once
	}
	if len(opts) > 0 {
		own := c.defaults
		if how.once {
			own.wait = waitPolicy{}
		}
		own = own.with(opts)
		if option := own.wait.option(); how.once && option != "" {
			own.refuse(outcome.Invalidf("%s is for Lock; TryLock and Resume do not wait", option))
		}
		own.wait.ttl, own.wait.once = own.ttl, how.once
		cfg, wait = &own, &own.wait
	}
	if cfg.err != nil {
		return nil, &Error{Op: "lock", Key: key, Err: cfg.err}
	}
	if ctx == nil {
		return nil, &Error{Op: "lock", Key: key, Err: errNilContext}
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "lock", Key: key, Err: ctxError(ctx)}
	}
	if err := contract.ValidateKey(key); err != nil { // before it stands in line
		return nil, &Error{Op: "lock", Key: key, Err: err}
	}
	req := contract.Request{
		Key: key, Token: c.defaults.holder.token(), Owner: ownerFrom(ctx), TTL: cfg.asks(),
		Turn: contract.Turn{OtherSoftware: c.defaults.otherSoftware},
	}
	if how.from != "" {
		req.Owner = "" // the store moves the hold as it is, and Transfer gives away none that has an owner
	}
	var chance nesting
	if !how.once {
		above := ctx
		if how.given != nil {
			above = how.given // the locks that DoAll has taken since then are of other keys
		}
		chance = c.nested(ctx, above, key, req.Owner)
	}
	switch chance {
	case nestedFull:
		return nil, &Error{Op: "lock", Key: key, Err: errDeadlock}
	case nestedAsk:
		wait = &waitPolicy{ttl: cfg.ttl, once: true}
	}
	so := effort{scoped: how.scoped, from: how.from, wait: wait}
	err := c.acquire(cfg.relying(ctx), &req, &so)
	if chance == nestedAsk && errors.Is(err, ErrHeld) {
		err = &Error{Op: "lock", Key: key, Err: errDeadlock}
	}
	if err != nil {
		return nil, wrap("acquire", key, err)
	}
	return c.hold(ctx, &so, cfg)
}

// acquire counts the attempt in until it is answered. The hooks of the hold come later: one of them
// may call Drain.
func (c *Client) acquire(ctx context.Context, req *contract.Request, so *effort) error {
	c.ledger.Begin() // waiting takes it back while the call sleeps
	defer c.ledger.Done()
	switch {
	case len(c.defaults.middleware) > 0:
		return c.through(ctx, req, so)
	case so.from != "":
		return c.inner.resume(ctx, req, so)
	}
	return c.inner.lock(ctx, req, so)
}

var (
	errNoClient   = outcome.Invalidf("the Client was not made by locker.New")
	errNilContext = outcome.Invalidf("ctx is nil; use context.Background()")
)

// option names the option about waiting that a call has; empty: none.
func (p *waitPolicy) option() string {
	switch {
	case p.limit != 0:
		return "locker.WithWait"
	case p.attempts != 0:
		return "locker.WithAttempts"
	case p.backoff != nil:
		return "locker.WithBackoff"
	}
	return ""
}

// nesting is what the holds above a Lock of the same key say of its chance.
type nesting int

const (
	nestedFree nesting = iota // there are none, or they leave room
	// The Client alone has all holds that the strategy admits: none ends before ctx does.
	nestedFull
	// Any number of holds may stand beside the one above, and that one has another owner. Some
	// strategies admit its owner alone (reentrant), others anybody (readers of rwlock). So the store
	// is asked once, and the lock is not waited for.
	nestedAsk
)

// nested looks at the holds of key by this Client from whose contexts ctx descends: above is ctx, or
// a ctx above it below which there is no hold of key. A ctx that can't end does not end with a hold.
func (c *Client) nested(ctx, above context.Context, key, owner string) nesting {
	if ctx.Done() == nil {
		return nestedFree
	}
	holds, chance := 0, nestedFree
	for h := holdOf(above); h != nil; h = holdOf(h.parent) {
		if h.client != c || h.lease.Key != key || !h.lasts() {
			continue
		}
		holds++
		switch room := h.lease.Room; { // it and the number of holds do not change after the grant
		case room >= 0 && holds >= max(h.lease.Holds, 1)+room:
			return nestedFull
		case room < 0 && h.lease.Owner != owner:
			chance = nestedAsk
		}
	}
	return chance
}

func (h *hold) lasts() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over.cause == nil && !h.lease.ended(time.Now())
}
