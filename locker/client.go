package locker

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// Client is to a [Locker] what http.Client is to http.RoundTripper: it waits for a lock that is held, keeps the lease
// of one that is held here alive, and tells the holder when it is lost. Safe for concurrent use. It needs no Close:
// nothing of it runs while no lock is held or waited for, except that the store is watched for 200 ms more after a lock that
// had to be waited for.
type Client struct {
	locker   Locker // the waiting Locker inside its middleware
	defaults config
	once     waitPolicy
	lines    lines
	workers  workers
	cleanups cleanup.Group
	renewals renewals
}

// New returns a Client that takes its locks from l. Options that make no sense fail every Lock with an error that says
// which.
func New(l Locker, opts ...Option) *Client {
	c := &Client{once: waitPolicy{once: true}}
	c.defaults = defaults().apply(opts)
	if l == nil {
		c.defaults.refuse(invalidf("locker is nil"))
	}
	w := &waiting{Locker: withItsClock(l), lines: &c.lines, workers: &c.workers, cleanups: &c.cleanups}
	w.handovers.limit = c.defaults.handover
	c.locker = Wrap(w, c.defaults.middleware...)
	c.renewals.wall = wallclock.Of(l)
	return c
}

// Lock waits until the lock is free and returns it held. It waits in line behind earlier calls for the same key (and
// owner) on this Client.
//
// When ctx ends first, Lock returns at once with an error that matches the ctx's, and [ErrHeld] as well if the lock
// was held when the store was last asked. [WithWait] limits the wait alone. Every other error means that the store
// could not tell or refused, and ends the wait. Whatever an attempt with an unknown outcome may have left in the store
// is removed in the background.
func (c *Client) Lock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.lock(ctx, key, opts, call{})
}

// TryLock makes one attempt and does not wait: the error matches [ErrHeld] if someone else has the lock.
func (c *Client) TryLock(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	return c.lock(ctx, key, opts, call{once: true})
}

// Do runs work under the lock and releases it when work returns, panics or calls runtime.Goexit. The ctx that work
// gets ends when the lock is lost. If work and the release both fail, their errors are joined, work's first. An error
// that matches [ErrLost] means that the lock was not held to the end of the work; an [*Error] whose Op is "release",
// that the work was done and the store did not say that the lock is free: it will be when its lease ends.
func (c *Client) Do(ctx context.Context, key string, work func(ctx context.Context, l *Lock) error, opts ...Option) (err error) {
	l, err := c.lock(ctx, key, opts, call{scoped: true})
	if err != nil {
		return err
	}
	defer func() {
		if released := l.Unlock(ctx); released != nil && !errors.Is(err, released) {
			err = errors.Join(err, released)
		}
	}()
	return work(l.Context(), l)
}

// call is what the three ways to lock differ in.
type call struct{ once, scoped bool }

func (c *Client) lock(ctx context.Context, key string, opts []Option, how call) (*Lock, error) {
	cfg, wait := &c.defaults, &c.defaults.wait
	if len(opts) > 0 {
		own := c.defaults.with(opts)
		cfg, wait = &own, &own.wait
	}
	if how.once {
		wait = &c.once
	}
	if cfg.err != nil {
		return nil, &Error{Op: "lock", Key: key, Err: cfg.err}
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "lock", Key: key, Err: ctxError(ctx)}
	}
	if err := ValidateKey(key); err != nil { // before it stands in line
		return nil, &Error{Op: "lock", Key: key, Err: err}
	}
	req := Request{Key: key, Token: NewToken(), Owner: ownerFrom(ctx), TTL: cfg.ttl, Scoped: how.scoped, wait: wait}
	c.workers.enter()
	var l *Lock
	defer func() {
		if l == nil { // also after a panic
			c.workers.exit()
		}
	}()
	lease, err := c.locker.Acquire(ctx, req)
	if err != nil {
		return nil, wrap("acquire", key, err)
	}
	l, err = c.hold(ctx, lease, cfg)
	return l, err
}
