package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// wantHeld checks the error of an attempt that began at began and found the lock held by g.
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
	tolerance := g.ttl/100 + 5*time.Millisecond + x.Resolution // for the clock of the store and for rounding
	least, most := g.Expires.Sub(ended)-tolerance, g.came.Add(g.ttl).Sub(began)+tolerance
	if x.Behind { // some nodes may have granted later, or have executed an Extend that failed
		most = max(most, held.Left)
	}
	switch {
	case x.NoLeft && held.Left != 0:
		x.Errorf("%v left; want 0, because of NoLeft", held.Left)
	case !x.NoLeft && (held.Left < 0 || held.Left < least || held.Left > most):
		x.Errorf("%v left; want at least %v and at most %v", held.Left, least, most)
	}
}

// wantHolds checks that g is still the lease of the lock: Extend works.
func (x *fixture) wantHolds(g grant) {
	x.Helper()
	x.extends(g.Lease, g.ttl)
}

// extends calls Extend for a lease, which must not have ended.
func (x *fixture) extends(lease contract.Lease, ttl time.Duration) contract.Lease {
	x.Helper()
	for began := time.Now(); ; time.Sleep(tick) {
		after, err := x.locker.Extend(x.Context(), lease, ttl)
		switch {
		case err == nil:
			return after
		case !x.late() || errors.Is(err, locker.ErrLost) || time.Since(began) > x.patience:
			x.Fatalf("the lease has ended: Extend: %v", err)
		}
	}
}

// late reports whether requests of a call may still be under way after its answer. A Locker with
// Behind answers before all its requests are done, and in real time they may take any time.
func (x *fixture) late() bool { return x.Behind && !x.Bubble }

// wantLost checks that err matches ErrLost.
func (x *fixture) wantLost(call string, err error) {
	x.Helper()
	if !errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
		x.Fatalf("%s: error %v; want one that matches ErrLost, and not ErrHeld", call, err)
	}
}

// wantUnknown checks that err says neither that the lock is held nor that it is lost.
func (x *fixture) wantUnknown(call string, err error) {
	x.Helper()
	if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
		x.Fatalf("%s: error %v; want one that matches neither ErrHeld nor ErrLost", call, err)
	}
}

// wantPermanent checks that err is permanent.
func (x *fixture) wantPermanent(call string, err error) {
	x.Helper()
	x.wantUnknown(call, err)
	if !outcome.Permanent(err) {
		x.Fatalf("%s: error %v; want one with a method Permanent that returns true", call, err)
	}
}

// wantEmpty checks that key is empty.
func (x *fixture) wantEmpty(key string) {
	x.Helper()
	if x.Behind {
		x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
		return
	}
	if x.beneath.Holds(key) {
		x.Fatalf("%.60q is not empty", key)
	}
}

// emptyInTheEnd checks that key is empty soon, and stays empty.
func (x *fixture) emptyInTheEnd(key string) {
	x.Helper()
	for range 3 {
		x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
		x.pause(50 * time.Millisecond)
	}
	x.eventually("the key is empty", func() bool { return !x.beneath.Holds(key) })
}

// eventually polls until done returns true.
func (x *fixture) eventually(what string, done func() bool) {
	x.Helper()
	for began := time.Now(); !done(); time.Sleep(tick) {
		if time.Since(began) > x.patience {
			x.Fatalf("not within %v: %s", x.patience, what)
		}
	}
}

// pause gives a broken Locker time to do what a correct one does not do. Fake time costs nothing,
// so there the pause is longer.
func (x *fixture) pause(d time.Duration) {
	if x.Bubble {
		d *= 20
	}
	time.Sleep(d)
}
