package lockertest

import (
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
)

// Faults of the store, many of which leave the outcome unknown.
var unknownSentences = []sentence{
	{"when the store fails, the error of Acquire matches neither ErrHeld nor ErrLost, and nothing is left", needs(faults), func(x *fixture) {
		key := x.key("k")
		x.beneath.FaultOnce(Acquire, backendtest.Fail)
		x.acquireFails(key)
		x.emptyInTheEnd(key)
		x.grant(key, x.long)
	}},
	{"when the store fails, the error matches the error of the store", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Fault(All, backendtest.Fail)
		_, acquired := x.locker.Acquire(x.Context(), x.request(x.key("free"), x.long))
		_, extended := x.locker.Extend(x.Context(), g.Lease, x.long)
		released := x.locker.Release(x.Context(), g.Lease)
		for _, err := range []error{acquired, extended, released} {
			if !errors.Is(err, x.Cause) {
				x.Errorf("error %v; want one that matches %q", err, x.Cause)
			}
		}
	}},
	{"when the store fails, a held lock is not reported as held, and its holder keeps it", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.FaultOnce(Acquire, backendtest.Fail)
		x.acquireFails(g.Key)
		x.pause(10 * tick)
		x.wantHolds(g)
	}},
	{"when the reply to Acquire is lost, the error matches neither ErrHeld nor ErrLost, and the grant is removed", needs(faults), func(x *fixture) {
		key := x.key("k")
		x.beneath.FaultOnce(Acquire, backendtest.LoseReply)
		x.acquireFails(key)
		x.emptyInTheEnd(key)
		x.grant(key, x.long)
	}},
	{"a cleanup that fails or hangs is repeated until it is answered", needs(faults), func(x *fixture) {
		key := x.key("k")
		x.beneath.FaultOnce(Acquire, backendtest.LoseReply)
		x.beneath.FaultOnce(Release, backendtest.Fail, backendtest.Hang, backendtest.Fail, backendtest.Fail)
		x.acquireFails(key)
		x.emptyInTheEnd(key)
	}},
	{"a grant that the store makes after its attempt has failed is removed too", needs(faults), func(x *fixture) {
		key := x.key("k")
		x.beneath.FaultOnce(Acquire, backendtest.Ghost(30*time.Millisecond))
		const ttl = 10 * time.Second // in real time the lease may end by itself: a cleanup does not go on for ever
		_, err := x.locker.Acquire(x.Context(), x.request(key, ttl))
		x.wantUnknown("Acquire", err)
		time.Sleep(30 * time.Millisecond)
		began := time.Now()
		x.emptyInTheEnd(key)
		x.soon("the late grant was removed", began, ttl/2)
	}},
	{"the cleanup of one attempt never removes the grant of the next", needs(faults), func(x *fixture) {
		for name, fault := range map[string]backendtest.Fault{"Fail": backendtest.Fail, "LoseReply": backendtest.LoseReply} {
			key := x.key(name)
			x.beneath.FaultOnce(Acquire, fault)
			x.beneath.FaultOnce(Release, backendtest.Late(30*time.Millisecond))
			x.acquireFails(key)
			var next grant
			x.eventually("the next attempt is granted", func() bool {
				req, began := x.request(key, x.long), time.Now()
				lease, err := x.locker.Acquire(x.Context(), req)
				next = grant{lease, x.long, began, time.Now()}
				return err == nil
			})
			held := 0
			x.eventually("ten attempts find the lock held", func() bool {
				x.pause(10 * time.Millisecond)
				began := time.Now()
				_, err := x.locker.Acquire(x.Context(), x.request(key, x.long))
				if x.Bubble || !outcome.Unsent(err) { // on a busy machine, the cleanup may get no answer in time
					x.wantHeld(err, next, began)
					held++
				}
				return held == 10
			})
			x.wantHolds(next)
		}
	}},
	{"when Extend fails, the error does not match ErrLost, the lease lasts, and a second Extend works", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.FaultOnce(Extend, backendtest.Fail)
		_, err := x.locker.Extend(x.Context(), g.Lease, 2*x.long)
		x.wantUnknown("Extend", err)
		x.heldBy(g, x.long)
		x.wantHolds(g)
	}},
	{"when the reply to Extend is lost, the error does not match ErrLost, and a second Extend moves Expires forward", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.FaultOnce(Extend, backendtest.LoseReply)
		_, err := x.locker.Extend(x.Context(), g.Lease, 2*x.long)
		x.wantUnknown("Extend", err)
		if after := x.extends(g.Lease, 2*x.long); !after.Expires.After(g.Expires) {
			x.Fatalf("Extend = %v; want an Expires after %v", after, g.Expires)
		}
	}},
	{"when Release fails, the error does not match ErrLost, and a second Release frees the lock", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.FaultOnce(Release, backendtest.Fail)
		x.wantUnknown("Release", x.locker.Release(x.Context(), g.Lease))
		x.heldBy(g, x.long)
		x.release(g.Lease)
		x.wantEmpty(g.Key)
	}},
	{"when the reply to Release is lost, the error does not match ErrLost, and the error of a second Release does", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.FaultOnce(Release, backendtest.LoseReply)
		x.wantUnknown("Release", x.locker.Release(x.Context(), g.Lease))
		// on a busy machine, the first Release may have reached too few servers before its timeout
		if err := x.locker.Release(x.Context(), g.Lease); err != nil || !x.late() {
			x.wantLost("Release", err)
		}
		x.wantEmpty(g.Key)
	}},
	{"a permanent error of the store is returned at once, is permanent, and changes nothing", needs(faults), func(x *fixture) {
		g, free := x.grant(x.key("k"), x.long), x.key("free")
		x.beneath.Fault(All, backendtest.Permanent)
		began := time.Now()
		_, err := x.locker.Acquire(x.Context(), x.request(free, x.long))
		x.wantPermanent("Acquire", err)
		_, err = x.locker.Extend(x.Context(), g.Lease, 2*x.long)
		x.wantPermanent("Extend", err)
		x.wantPermanent("Release", x.locker.Release(x.Context(), g.Lease))
		x.soon("all three returned", began, tick)
		x.beneath.Fault(All, nil)
		x.wantEmpty(free)
		if x.late() { // enough nodes have failed; the requests to the others may be under way
			_ = x.locker.Release(x.Context(), g.Lease)
			x.emptyInTheEnd(g.Key)
			return
		}
		x.heldBy(g, x.long)
		x.release(g.Lease)
	}},
}

func (x *fixture) acquireFails(key string) {
	x.Helper()
	_, err := x.locker.Acquire(x.Context(), x.request(key, x.long))
	x.wantUnknown("Acquire", err)
}

var foreignSentences = []sentence{
	{"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays", needs(foreign), func(x *fixture) {
		key := x.key("k")
		x.beneath.SetForeign(key)
		_, err := x.locker.Acquire(x.Context(), x.request(key, x.long))
		var held *locker.HeldError
		if !errors.As(err, &held) || !errors.Is(err, locker.ErrHeld) || !errors.Is(err, locker.ErrForeignKey) {
			x.Fatalf("Acquire: error %v; want a *HeldError that matches ErrHeld and ErrForeignKey", err)
		}
		if !held.Foreign || held.Left != 0 || held.Key != key || errors.Is(err, locker.ErrLost) {
			x.Errorf("Acquire: error %+v", held)
		}
		x.pause(10 * tick)
		if !x.beneath.Holds(key) {
			x.Fatalf("the foreign value is gone")
		}
		x.beneath.Delete(key)
		x.grant(key, x.long)
	}},
	{"a value of another type is an error that matches ErrForeignKey and not ErrHeld, and stays", needs(foreign), func(x *fixture) {
		key := x.key("k")
		x.beneath.SetOther(key)
		_, err := x.locker.Acquire(x.Context(), x.request(key, x.long))
		x.wantUnknown("Acquire", err)
		if !errors.Is(err, locker.ErrForeignKey) {
			x.Fatalf("Acquire: error %v; want one that matches ErrForeignKey", err)
		}
		x.pause(10 * tick)
		if !x.beneath.Holds(key) {
			x.Fatalf("the foreign value is gone")
		}
	}},
	{"Extend and Release of a lease whose key was overwritten fail, and the new value stays", needs(foreign), func(x *fixture) {
		for name, overwrite := range map[string]func(string){"foreign": x.beneath.SetForeign, "other": x.beneath.SetOther} {
			g := x.grant(x.key(name), x.long)
			overwrite(g.Key)
			if _, err := x.locker.Extend(x.Context(), g.Lease, x.long); err == nil || errors.Is(err, locker.ErrHeld) {
				x.Errorf("%s: Extend: error %v", name, err)
			}
			if err := x.locker.Release(x.Context(), g.Lease); err == nil || errors.Is(err, locker.ErrHeld) {
				x.Errorf("%s: Release: error %v", name, err)
			}
			if !x.beneath.Holds(g.Key) {
				x.Errorf("the %s value is gone", name)
			}
		}
	}},
}
