package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
)

var contextSentences = []sentence{
	{"Acquire with a ctx that is done returns the error of the ctx and grants nothing", nil, func(x *fixture) {
		key := x.key("k")
		x.done(func(ctx context.Context) error {
			_, err := x.locker.Acquire(ctx, x.request(key, x.long))
			return err
		})
		x.pause(tick)
		x.wantEmpty(key)
	}},
	{"Extend and Release with a ctx that is done return the error of the ctx and leave the lease alone", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.done(func(ctx context.Context) error {
			_, err := x.locker.Extend(ctx, g.Lease, 2*x.long)
			return err
		})
		x.done(func(ctx context.Context) error { return x.locker.Release(ctx, g.Lease) })
		x.pause(tick)
		x.heldBy(g, x.long)
		x.release(g.Lease)
	}},
	{"when ctx ends while the store hangs, Acquire soon returns the error of the ctx, and nothing is left", needs(faults), func(x *fixture) {
		for name, fault := range map[string]backendtest.Fault{"Hang": backendtest.Hang, "LoseReplyHang": backendtest.LoseReplyHang} {
			x.beneath.FaultOnce(Acquire, fault)
			key := x.key(name)
			began := time.Now()
			err := answer(x, "Acquire returns when its ctx ends", x.async(func() error {
				ctx, cancel := context.WithTimeout(x.Context(), x.short)
				defer cancel()
				_, err := x.locker.Acquire(ctx, x.request(key, x.long))
				return err
			}))
			x.soon("Acquire returned", began, x.short+slack)
			x.wantCtx(err, context.DeadlineExceeded)
			x.emptyInTheEnd(key)
		}
	}},
	{"when ctx ends while the store hangs, the cleanup has a context of its own", needs(faults), func(x *fixture) {
		x.beneath.FaultOnce(Acquire, backendtest.LoseReplyHang)
		key := x.key("k")
		ctx, cancel := context.WithCancel(x.Context())
		got := x.async(func() error {
			_, err := x.locker.Acquire(ctx, x.request(key, x.long))
			return err
		})
		x.eventually("the store has the request", func() bool { return x.beneath.Holds(key) })
		cancel()
		x.wantCtx(answer(x, "Acquire returns when its ctx ends", got), context.Canceled)
		x.emptyInTheEnd(key)
	}},
	{"when the store answers after ctx has ended, Acquire grants the lock or leaves nothing", needs(faults), func(x *fixture) {
		for name, fault := range map[string]backendtest.Fault{"Late": backendtest.Late(2 * x.short), "LateReply": backendtest.LateReply(2 * x.short)} {
			x.beneath.FaultOnce(Acquire, fault)
			key := x.key(name)
			ctx, cancel := context.WithTimeout(x.Context(), x.short)
			lease, err := x.locker.Acquire(ctx, x.request(key, x.long))
			cancel()
			if err == nil {
				x.release(lease)
			} else {
				x.wantUnknown("Acquire", err)
			}
			time.Sleep(2 * x.short) // the request may still be under way
			x.emptyInTheEnd(key)
		}
	}},
	{"when ctx ends while the store hangs, Extend returns the error of the ctx and the lease lasts", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Fault(Extend, backendtest.Hang)
		x.ends(func(ctx context.Context) error {
			_, err := x.locker.Extend(ctx, g.Lease, 2*x.long)
			return err
		})
		x.beneath.Fault(Extend, nil)
		x.heldBy(g, x.long)
		x.wantHolds(g)
	}},
	{"when ctx ends while the store hangs, Release returns the error of the ctx and can be repeated", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Fault(Release, backendtest.Hang)
		x.ends(func(ctx context.Context) error { return x.locker.Release(ctx, g.Lease) })
		x.beneath.Fault(Release, nil)
		x.release(g.Lease)
		x.wantEmpty(g.Key)
	}},
}

// done calls do with a ctx that was cancelled, and with one whose deadline has passed.
func (x *fixture) done(do func(ctx context.Context) error) {
	x.Helper()
	cancelled, cancel := context.WithCancel(x.Context())
	cancel()
	x.wantCtx(do(cancelled), context.Canceled)
	expired, cancel := context.WithDeadline(x.Context(), time.Now().Add(-time.Second))
	defer cancel()
	x.wantCtx(do(expired), context.DeadlineExceeded)
}

// ends calls do with a ctx that ends soon.
func (x *fixture) ends(do func(ctx context.Context) error) {
	x.Helper()
	began := time.Now()
	err := answer(x, "the call returns when its ctx ends", x.async(func() error {
		ctx, cancel := context.WithTimeout(x.Context(), x.short)
		defer cancel()
		return do(ctx)
	}))
	x.soon("the call returned", began, x.short+slack)
	x.wantCtx(err, context.DeadlineExceeded)
}

// wantCtx checks that err matches want, the error of a ctx, and neither ErrHeld nor ErrLost.
func (x *fixture) wantCtx(err, want error) {
	x.Helper()
	if !errors.Is(err, want) || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
		x.Fatalf("error %v; want one that matches %q, and neither ErrHeld nor ErrLost", err, want)
	}
}
