package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// wantHeld checks the answer to a request for what g has, sent at began.
func (x *fixture) wantHeld(err error, g grant, began time.Time) {
	x.Helper()
	ended := time.Now()
	var held *locker.HeldError
	if !errors.As(err, &held) || !errors.Is(err, locker.ErrHeld) {
		x.Fatalf("error %v; want a *HeldError that matches ErrHeld", err)
	}
	for _, other := range []error{
		locker.ErrLost, locker.ErrReleased, locker.ErrWaitLimit, locker.ErrForeignKey,
		context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported,
	} {
		if errors.Is(err, other) {
			x.Errorf("error %q matches %q as well", err, other)
		}
	}
	if held.Key != g.Key || held.Foreign {
		x.Errorf("error %+v; want the key %.60q", held, g.Key)
	}
	tolerance := g.ttl/100 + 5*time.Millisecond + x.Resolution // for a store's clock and rounding
	least, most := g.Expires.Sub(ended)-tolerance, g.came.Add(g.ttl).Sub(began)+tolerance
	if x.Behind { // it may have been granted later by some, or extended by a request that has failed
		most = max(most, held.Left)
	}
	switch {
	case x.NoLeft && held.Left != 0:
		x.Errorf("%v left; the harness says that it can't be known", held.Left)
	case !x.NoLeft && (held.Left < 0 || held.Left < least || held.Left > most):
		x.Errorf("%v left; want at least %v and at most %v", held.Left, least, most)
	}
}

// wantHolds checks that g is as good as ever: it can be extended.
func (x *fixture) wantHolds(g grant) {
	x.Helper()
	x.extends(g.Lease, g.ttl)
}

// extends makes a lease longer, which must be there.
func (x *fixture) extends(lease locker.Lease, ttl time.Duration) locker.Lease {
	x.Helper()
	for began := time.Now(); ; time.Sleep(tick) {
		after, err := x.locker.Extend(x.Context(), lease, ttl)
		switch {
		case err == nil:
			return after
		case !x.late() || errors.Is(err, locker.ErrLost) || time.Since(began) > x.patience:
			x.Fatalf("the lease is not there any more: Extend: %v", err)
		}
	}
}

// late tells whether something may still be on its way from a call that has been answered: the Locker answers before all
// that it has sent is done, and machines are as slow as they like.
func (x *fixture) late() bool { return x.Behind && !x.Bubble }

// wantLost checks an error that says that a lease has ended.
func (x *fixture) wantLost(call string, err error) {
	x.Helper()
	if !errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
		x.Fatalf("%s: error %v; want one that matches ErrLost, and not ErrHeld", call, err)
	}
}

// wantUnknown checks an error that says neither that someone has the lock nor that it is lost.
func (x *fixture) wantUnknown(call string, err error) {
	x.Helper()
	if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
		x.Fatalf("%s: error %v; want one that matches neither ErrHeld nor ErrLost", call, err)
	}
}

// wantPermanent checks an error that says that repeating will not help.
func (x *fixture) wantPermanent(call string, err error) {
	x.Helper()
	x.wantUnknown(call, err)
	if !isPermanent(err) {
		x.Fatalf("%s: error %v; want one with a method Permanent that returns true", call, err)
	}
}

func isPermanent(err error) bool {
	var r interface{ Permanent() bool }
	return errors.As(err, &r) && r.Permanent()
}

// wantEmpty checks that nothing lies under key.
func (x *fixture) wantEmpty(key string) {
	x.Helper()
	if x.Behind {
		x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
		return
	}
	if x.beneath.Holds(key) {
		x.Fatalf("something lies under %.60q; want nothing", key)
	}
}

// emptyInTheEnd checks that nothing lies under key soon, and that nothing comes back.
func (x *fixture) emptyInTheEnd(key string) {
	x.Helper()
	for range 3 {
		x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
		x.pause(50 * time.Millisecond)
	}
	x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
}

// eventually polls until done says so.
func (x *fixture) eventually(what string, done func() bool) {
	x.Helper()
	for began := time.Now(); !done(); time.Sleep(tick) {
		if time.Since(began) > x.patience {
			x.Fatalf("not within %v: %s", x.patience, what)
		}
	}
}

// pause lets time pass for what a correct Locker does not do. Fake time costs nothing, so there it is longer.
func (x *fixture) pause(d time.Duration) {
	if x.Bubble {
		d *= 20
	}
	time.Sleep(d)
}
