package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// holdContext is the Context of a Lock. It reads the clocks before it says that the hold lasts:
// after a pause, the scheduler may not have run yet. It is a part of the Lock, so the Lock is not
// garbage while its context is in use.
type holdContext struct{ hold *hold }

func (c *holdContext) Deadline() (time.Time, bool) { return c.hold.parent.Deadline() }
func (c *holdContext) Done() <-chan struct{}       { return c.hold.context().Done() }

// Value returns the hold for a Lock below it: see Client.nested.
func (c *holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	return c.hold.context().Value(key)
}

func (c *holdContext) Err() error {
	ctx, over := c.hold.state(time.Now())
	switch {
	case ctx != nil:
		return ctx.Err()
	case over != nil && !c.hold.over.stopped:
		return context.Canceled
	}
	return c.hold.parent.Err()
}

type holdKey struct{}

// holdOf is the innermost hold from whose context ctx descends, or nil.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// String, GoString and Format keep fmt from printing the hold inside.
func (c *holdContext) String() string {
	return fmt.Sprintf("%v.WithLock(%q)", c.hold.given, printed.Key(c.hold.lease.Key))
}

func (c *holdContext) GoString() string { return c.String() }

func (c *holdContext) Format(s fmt.State, verb rune) { printed.Format(s, verb, c) }

// deadlineContext is what the first Release of a hold runs under, if that has no sharedContext. See
// bench/regress/mechanisms.md.
type deadlineContext struct {
	countedContext // of the ctx given to Lock
	ctxEnd
	deadline time.Time
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// attemptContext is the ctx of an attempt. It has the values of the caller's ctx. Its deadline is for client
// libraries that look at nothing else. The caller of the attempt waits with a timer anyway, and ends the
// ctx.
type attemptContext struct {
	countedContext // of the caller
	ctxEnd
	deadline time.Time
	said     said // to middleware around the attempt
}

func (c *attemptContext) Deadline() (time.Time, bool) { return c.deadline, true }

// sharedContext is the ctx of calls of a Locker whose calls end by themselves: the attempts that run on
// the goroutines of their callers (see waiting.alone), and first Releases. Calls that begin within a short
// time share one. It has a timer only if somebody asks for its Done; until then, Err reads the clock.
type sharedContext struct {
	ctxEnd
	until    time.Time // for calls that begin before
	deadline time.Time
	within   time.Duration // from the first call to the deadline
	ledger   *cleanup.Ledger
	arming   sync.Once
	armed    atomic.Bool
}

// contexts has the sharedContext for calls that begin now.
type contexts struct{ last atomic.Pointer[sharedContext] }

// at is a ctx that ends within that time from now, or up to an eighth of it sooner.
func (s *contexts) at(now time.Time, within time.Duration, ledger *cleanup.Ledger) *sharedContext {
	if c := s.last.Load(); c != nil && c.within == within && now.Before(c.until) {
		return c
	}
	c := &sharedContext{until: now.Add(within / 8), deadline: now.Add(within), within: within, ledger: ledger}
	s.last.Store(c)
	return c
}

func (c *sharedContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *sharedContext) Done() <-chan struct{} {
	c.arm()
	return c.ctxEnd.Done()
}

func (c *sharedContext) AfterFunc(f func()) (stop func() bool) {
	c.arm()
	return c.ctxEnd.AfterFunc(f)
}

func (c *sharedContext) arm() {
	if c.armed.Load() {
		return
	}
	c.arming.Do(func() {
		if left := time.Until(c.deadline); left > 0 {
			time.AfterFunc(left, func() { c.end(context.DeadlineExceeded) })
		} else {
			c.end(context.DeadlineExceeded)
		}
		c.armed.Store(true)
	})
}

func (c *sharedContext) Err() error {
	if !c.armed.Load() && !time.Now().Before(c.deadline) {
		c.end(context.DeadlineExceeded)
	}
	return c.ctxEnd.Err()
}

func (c *sharedContext) Value(key any) any {
	if key == (calls.DrainKey{}) {
		return c.ledger
	}
	return nil
}

// with is c, with the values of ctx, whose end is not that of c.
func (c *sharedContext) with(ctx context.Context) context.Context {
	if through, ok := ctx.(*callContext); ok { // no middleware is around this attempt
		ctx = through.Context
	}
	if ctx == context.Background() {
		return c
	}
	return &givenContext{c, ctx}
}

// givenContext is a sharedContext with the values of the caller's ctx.
type givenContext struct {
	*sharedContext
	given context.Context
}

func (c *givenContext) Value(key any) any {
	switch key {
	case calls.DrainKey{}:
		return c.ledger
	case calls.Key{}:
		return nil // of the whole call: no middleware is around this attempt
	}
	return c.given.Value(key)
}

func (c *attemptContext) Value(key any) any {
	if key == (calls.Key{}) {
		return &c.said
	}
	return c.countedContext.Value(key)
}

// ctxError is the error of ctx, and its cause if that says more.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	if cause == ErrReleased { //nolint:errorlint // what wraps it says more
		cause = releasedAbove(ctx)
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// releasedAbove is the error for a ctx that descends from a hold which was released.
func releasedAbove(ctx context.Context) error {
	for h := holdOf(ctx); h != nil; h = holdOf(h.parent) {
		if h.isReleased() {
			return releasedError{h.lease.Key}
		}
	}
	return ErrReleased
}

// releasedError is ErrReleased for another lock than the one that the call is about.
type releasedError struct{ key string }

func (e releasedError) Error() string { return fmt.Sprintf("lock %q released", printed.Key(e.key)) }

// Is matches ErrReleased.
func (e releasedError) Is(target error) bool { return target == ErrReleased }
