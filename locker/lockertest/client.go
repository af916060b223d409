package lockertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
)

// The sentences of this file and of wait.go, renew.go, unlock.go and hold.go are about a Client
// over the Locker.

// client returns a Client whose leases do not end during a sentence, unless opts has a TTL: a machine
// may stand still for longer than the TTL of a Client without options.
func (x *fixture) client(opts ...locker.ClientOption) *locker.Client {
	return locker.New(x.locker, slices.Concat([]locker.ClientOption{locker.WithTTL(x.long)}, x.Options, opts, x.options)...)
}

// lock takes key, which must be free, through c. In real time a lease may have ended when the
// answer comes. Then lock tries again.
func (x *fixture) lock(c *locker.Client, key string, opts ...locker.Option) *locker.Lock {
	x.Helper()
	for {
		began := time.Now()
		l, err := c.Lock(x.Context(), key, opts...)
		switch late := time.Since(began) > renewed/2; {
		case err == nil:
			return l
		case x.Bubble || !late || errors.Is(err, locker.ErrHeld) || outcome.Permanent(err):
			x.Fatalf("Lock: %v", err)
		}
	}
}

func (x *fixture) unlock(l *locker.Lock) {
	x.Helper()
	if err := l.Unlock(x.Context()); err != nil {
		x.Fatalf("Unlock: %v", err)
	}
}

// A locked is the result of a Lock, and when it came.
type locked struct {
	*locker.Lock
	err error
	at  time.Time
}

// waits calls Lock in the background.
func (x *fixture) waits(ctx context.Context, c *locker.Client, key string, opts ...locker.Option) <-chan locked {
	got := make(chan locked, 1)
	go func() {
		l, err := c.Lock(ctx, key, opts...)
		got <- locked{l, err, time.Now()}
	}()
	return got
}

// got waits for a Lock that must succeed.
func (x *fixture) got(from <-chan locked) locked {
	x.Helper()
	l := answer(x, "Lock returns", from)
	if l.err != nil {
		x.Fatalf("Lock: %v", l.err)
	}
	return l
}

// stillWaits checks that Lock has not returned.
func (x *fixture) stillWaits(from <-chan locked) {
	x.Helper()
	select {
	case l := <-from:
		x.Fatalf("Lock returned while the lock is held: %v", l.err)
	default:
	}
}

// lost checks that the context of l ends no later than the lease, with a cause that matches
// ErrLost.
func (x *fixture) lost(l *locker.Lock) *locker.LostError {
	x.Helper()
	ctx := l.Context()
	x.eventually("the context ends", func() bool {
		now, expires := time.Now(), l.Lease().Expires
		err := ctx.Err()
		if err == nil && now.After(expires.Add(tick)) { // a look at Expires itself has a sentence of its own
			x.Fatalf("the context has not ended %v after Expires", now.Sub(expires))
		}
		return err != nil
	})
	answer(x, "Done is closed", ctx.Done())
	x.soon("the context ended", l.Lease().Expires, tick)
	var lost *locker.LostError
	if cause := context.Cause(ctx); !errors.Is(cause, locker.ErrLost) || !errors.As(cause, &lost) {
		x.Fatalf("the context ended with cause %v; want a *LostError that matches ErrLost", cause)
	}
	return lost
}

var clientSentences = []sentence{
	{"Lock and TryLock of a free lock succeed at once, and Unlock leaves nothing", nil, func(x *fixture) {
		c, key := x.client(locker.WithTTL(x.long)), x.key("k")
		for _, take := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){c.Lock, c.TryLock} {
			began := time.Now()
			l, err := take(x.Context(), key)
			if err != nil {
				x.Fatalf("Lock: %v", err)
			}
			x.soon("Lock returned", began, slack)
			if lease := l.Lease(); lease.Key != key || l.Key() != key || l.Context().Err() != nil || lease.Ended() {
				x.Errorf("the lock is %v, its context %v", lease, l.Context().Err())
			}
			if !x.beneath.Holds(key) {
				x.Errorf("the key is empty")
			}
			x.unlock(l)
			if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrReleased) {
				x.Errorf("the context ended with cause %v; want ErrReleased", cause)
			}
			x.wantEmpty(key)
		}
	}},
	{"a lock that a Client holds is held for everyone else", nil, func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		l := x.lock(c, x.key("k"))
		if _, err := x.locker.Acquire(x.Context(), x.request(l.Key(), x.long)); !errors.Is(err, locker.ErrHeld) {
			x.Errorf("Acquire: error %v; want ErrHeld", err)
		}
		for _, other := range []*locker.Client{c, x.client(locker.WithTTL(x.long))} {
			if _, err := other.TryLock(x.Context(), l.Key()); !errors.Is(err, locker.ErrHeld) {
				x.Errorf("TryLock: error %v; want ErrHeld", err)
			}
		}
		x.unlock(l)
	}},
	{"a Lock under the context of a hold of the same key is granted, or fails at once as a deadlock", nil, func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		for _, owners := range [][2]string{{"", ""}, {"ann", "ann"}, {"ann", "bob"}, {"ann", ""}, {"", "ann"}} {
			outer, err := c.Lock(locker.ContextWithOwner(x.Context(), owners[0]), x.key("of "+owners[0]+" and "+owners[1]))
			if err != nil {
				x.Fatalf("Lock: %v", err)
			}
			if lease := outer.Lease(); lease.Holds > 1 && lease.Room == 0 { // others have the rest, and may give it back
				x.unlock(outer)
				continue
			}
			nested := answer(x, "the nested Lock returns", x.async(func() error {
				inner, err := c.Lock(locker.ContextWithOwner(outer.Context(), owners[1]), outer.Key())
				if err == nil {
					err = inner.Unlock(x.Context())
				}
				return err
			}))
			var failed *locker.Error
			if nested != nil && (!errors.As(nested, &failed) || failed.ErrorType() != "deadlock") {
				x.Errorf("Lock of owner %q under a hold of owner %q: %v; want it granted, or a deadlock", owners[1], owners[0], nested)
			}
			x.unlock(outer)
		}
	}},
	{"TryLock of a held lock returns at once with ErrHeld", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		began := time.Now()
		_, err := x.client(locker.WithTTL(x.long/2)).TryLock(x.Context(), g.Key) // another ttl than the hold's
		x.wantHeld(err, g, began)
		x.soon("TryLock returned", began, slack)
	}},
	{"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left", needs(faults), func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		for name, fault := range map[string]backendtest.Fault{"Fail": backendtest.Fail, "LoseReply": backendtest.LoseReply} {
			key := x.key(name)
			x.beneath.FaultOnce(Acquire, fault, fault)
			_, err := c.TryLock(x.Context(), key)
			x.wantUnknown("TryLock", err)
			_, err = c.Lock(x.Context(), x.key("another"+name))
			x.wantUnknown("Lock", err)
			x.emptyInTheEnd(key)
		}
	}},
	{"Lock returns a permanent error of the store at once, as a permanent error", needs(faults), func(x *fixture) {
		x.beneath.Fault(Acquire, backendtest.Permanent)
		key := x.key("k")
		began := time.Now()
		_, err := x.client().Lock(x.Context(), key)
		x.wantPermanent("Lock", err)
		x.soon("Lock returned", began, slack)
		x.wantEmpty(key)
	}},
	{"Lock with a bad key or ttl returns a permanent error that names it, at once", nil, func(x *fixture) {
		for _, bad := range append(x.badRequests(), x.tooLong()) {
			if bad.Token != "" {
				_, err := x.client(locker.WithTTL(bad.TTL)).Lock(x.Context(), bad.Key)
				x.wantPermanent("Lock", err)
			}
		}
	}},
	{"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left", needs(faults), func(x *fixture) {
		for name, fault := range map[string]backendtest.Fault{"Hang": backendtest.Hang, "LoseReplyHang": backendtest.LoseReplyHang} {
			x.leaves(name, func() func() {
				x.beneath.FaultOnce(Acquire, fault)
				return func() {}
			})
		}
	}},
	{"when ctx ends while the store hangs and ignores it, Lock and TryLock return at once, not with ErrHeld, and nothing is left", needs(faults), func(x *fixture) {
		x.leaves("Stall", func() func() { return x.stall(Acquire) })
	}},
	{"when the store answers after ctx has ended, Lock and TryLock have returned, and nothing is left", needs(faults), func(x *fixture) {
		delay := 3 * x.short
		if !x.Bubble {
			delay = 10 * x.short // later than the end of a ctx, on a busy machine too
		}
		for name, fault := range map[string]backendtest.Fault{"Late": backendtest.Late(delay), "LateReply": backendtest.LateReply(delay)} {
			x.leaves(name, func() func() {
				x.beneath.FaultOnce(Acquire, fault)
				return func() { time.Sleep(delay) }
			})
		}
	}},
	{"Lock and TryLock with a ctx that is done return the error of the ctx and take nothing", nil, func(x *fixture) {
		c, key := x.client(), x.key("k")
		x.done(func(ctx context.Context) error { _, err := c.Lock(ctx, key); return err })
		x.done(func(ctx context.Context) error { _, err := c.TryLock(ctx, key); return err })
		x.pause(tick)
		x.wantEmpty(key)
	}},
}

// leaves checks a Lock and a TryLock whose ctx ends during a fault. hang begins the fault, and
// returns a func that ends it.
func (x *fixture) leaves(name string, hang func() (over func())) {
	x.Helper()
	c := x.client(locker.WithTTL(x.long))
	for way, take := range map[string]func(context.Context, string, ...locker.Option) (*locker.Lock, error){
		"Lock": c.Lock, "TryLock": c.TryLock,
	} {
		over := hang()
		key := x.key(name + way)
		ctx, cancel := context.WithTimeout(x.Context(), x.short)
		began := time.Now()
		err := answer(x, way+" returns when its ctx ends", x.async(func() error {
			_, err := take(ctx, key)
			return err
		}))
		cancel()
		x.soon(way+" returned", began, x.short+tick)
		x.wantCtx(err, context.DeadlineExceeded)
		over()
		x.emptyInTheEnd(key)
	}
}
