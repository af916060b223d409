package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var transferSentences = []sentence{
	{"a request from the token of a hold takes its place, with a greater number or none", nil, func(x *fixture) {
		old := x.grant(x.key("k"), x.long)
		if x.NoTransfer {
			x.wantNoTransfer(old.Token, x.request(old.Key, x.long))
			x.wantHolds(old)
			return
		}
		g := x.transferred(old)
		if old.Fence > 0 && g.Fence <= old.Fence {
			x.Errorf("number %d after %d", g.Fence, old.Fence)
		}
		_, err := x.locker.Extend(x.Context(), old.Lease, x.long)
		x.wantLost("Extend of the old lease", err)
		x.wantLost("Release of the old lease", x.locker.Release(x.Context(), old.Lease))
		x.wantHolds(g)
		x.release(g.Lease)
		x.wantEmpty(g.Key)
	}},
	{"a request from a token that has no hold is held, also if the lock is free, and takes nothing", nil, func(x *fixture) {
		free, key := x.request(x.key("free"), x.long), x.key("k")
		from := []string{rand.Text()}
		for _, end := range x.endings() {
			for _, key := range []string{free.Key, key} {
				g := x.grant(key, x.long)
				end(g)
				from = append(from, g.Token)
			}
		}
		g := x.grant(key, x.long)
		taken := x.request(key, x.long)
		for _, from := range from {
			for _, req := range []contract.Request{free, taken} {
				if x.NoTransfer {
					x.wantNoTransfer(from, req)
				} else if lease, err := x.locker.Transfer(x.Context(), from, req); !errors.Is(err, locker.ErrHeld) {
					x.Errorf("Transfer = %v, %v; want it held", lease, err)
				}
			}
		}
		x.emptyInTheEnd(free.Key)
		x.wantHolds(g)
	}},
	{"of concurrent Transfers from one hold at most one is granted", nil, func(x *fixture) {
		if x.NoTransfer {
			return
		}
		old := x.grant(x.key("k"), x.long)
		var granted atomic.Int64
		together(callers, func(int) {
			if _, err := x.locker.Transfer(x.Context(), old.Token, x.request(old.Key, x.long)); err == nil {
				granted.Add(1)
			}
		})
		if n := granted.Load(); n > 1 {
			x.Errorf("%d of %d Transfers were granted", n, callers)
		}
	}},
	{"Transfer of a lock that can't be resumed fails for good, and the lock is held as before", nil, func(x *fixture) {
		if !x.NoTransfer {
			return
		}
		c := x.client(locker.WithTTL(x.long))
		l := x.lock(c, x.key("k"))
		t, err := l.Transfer(x.Context(), x.long)
		x.wantPermanent("Transfer", err)
		if !errors.Is(err, errors.ErrUnsupported) {
			x.Errorf("Transfer = %v, %v; want an error that matches errors.ErrUnsupported", t, err)
		}
		if err := l.Context().Err(); err != nil {
			x.Errorf("the context has ended: %v", err)
		}
		if _, err := c.TryLock(x.Context(), l.Key()); !errors.Is(err, locker.ErrHeld) {
			x.Errorf("TryLock = %v; want it held", err)
		}
		x.unlock(l)
		x.wantEmpty(l.Key())
	}},
	{"Transfer ends the hold, and Resume by another Client goes on, once", nil, func(x *fixture) {
		if x.NoTransfer {
			return
		}
		l, next := x.lock(x.client(), x.key("k")), x.client()
		t, err := l.Transfer(x.Context(), x.long)
		if err != nil {
			x.Fatalf("Transfer: %v", err)
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrReleased) {
			x.Errorf("the context ended with cause %v; want ErrReleased", cause)
		}
		if _, err := next.TryLock(x.Context(), l.Key()); !errors.Is(err, locker.ErrHeld) {
			x.Errorf("TryLock before Resume = %v; want it held", err)
		}
		resumed, err := next.Resume(x.Context(), t)
		if err != nil {
			x.Fatalf("Resume: %v", err)
		}
		if err := l.Unlock(x.Context()); err != nil {
			x.Errorf("a late Unlock = %v", err)
		}
		if err := resumed.Extend(x.Context(), x.long); err != nil {
			x.Errorf("Extend = %v", err)
		}
		if again, err := x.client().Resume(x.Context(), t); !errors.Is(err, locker.ErrLost) {
			x.Errorf("a second Resume = %v, %v; want one that matches ErrLost", again, err)
		}
		if err := resumed.Unlock(x.Context()); err != nil {
			x.Errorf("Unlock = %v", err)
		}
		x.wantEmpty(l.Key())
	}},
	{"a Ticket that nobody resumes ends with its ttl, and is of no use then", nil, func(x *fixture) {
		if x.NoTransfer {
			return
		}
		var last string
		var t locker.Ticket
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			last = key
			l, err := x.client(locker.WithTTL(ttl)).Lock(x.Context(), key)
			if err == nil {
				if t, err = l.Transfer(x.Context(), ttl); err != nil {
					_ = l.Unlock(x.Context()) // it may be held as before
				}
			}
			if err != nil && x.Bubble {
				x.Fatalf("Lock and Transfer: %v", err)
			}
			return err == nil
		})
		x.emptyInTheEnd(last)
		if resumed, err := x.client().Resume(x.Context(), t); !errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
			x.Errorf("Resume = %v, %v; want one that matches ErrLost alone", resumed, err)
		}
		x.emptyInTheEnd(last)
	}},
	{"when the answer to Resume is lost, nothing is left", needs(faults), func(x *fixture) {
		if x.NoTransfer {
			return
		}
		l := x.lock(x.client(), x.key("k"))
		t, err := l.Transfer(x.Context(), x.long)
		if err != nil {
			x.Fatalf("Transfer: %v", err)
		}
		x.beneath.FaultOnce(Acquire, backendtest.LoseReply)
		if resumed, err := x.client().Resume(x.Context(), t); err == nil {
			x.Errorf("Resume = %v; want an error", resumed)
		}
		x.emptyInTheEnd(l.Key())
	}},
}

// transferred moves the hold g to another token.
func (x *fixture) transferred(g grant) grant {
	x.Helper()
	req, began := x.request(g.Key, x.long), time.Now()
	lease, err := x.locker.Transfer(x.Context(), g.Token, req)
	if err != nil {
		x.Fatalf("Transfer: %v; want it granted", err)
	}
	return grant{lease, req.TTL, began, time.Now()}
}

// wantNoTransfer checks that Transfer is refused for good.
func (x *fixture) wantNoTransfer(from string, req contract.Request) {
	x.Helper()
	_, err := x.locker.Transfer(x.Context(), from, req)
	x.wantPermanent("Transfer", err)
	if !errors.Is(err, errors.ErrUnsupported) {
		x.Errorf("Transfer = %v; want an error that matches errors.ErrUnsupported", err)
	}
}
