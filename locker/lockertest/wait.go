package lockertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
)

var waitSentences = []sentence{
	{"Lock waits for a lock that is held, and gets it soon after Unlock", nil, func(x *fixture) {
		one := x.client(locker.WithTTL(x.long))
		for name, other := range map[string]*locker.Client{"same": one, "another": x.client(locker.WithTTL(x.long))} {
			l := x.lock(one, x.key(name))
			waiting := x.waits(x.Context(), other, l.Key())
			x.pause(50 * time.Millisecond)
			x.stillWaits(waiting)
			x.unlock(l)
			unlocked := time.Now()
			next := x.got(waiting)
			x.soon("Lock returned", unlocked, pollCap+slack)
			x.unlock(next.Lock)
		}
	}},
	{"Lock gets the lock of a dead holder soon after its lease has ended, and not before", nil, func(x *fixture) {
		g := x.grant(x.key("k"), 3*x.short)
		next := x.got(x.waits(x.Context(), x.client(), g.Key))
		if next.at.Before(g.Expires) {
			x.Errorf("Lock returned %v before the lease of the dead holder had ended", g.Expires.Sub(next.at))
		}
		x.soon("Lock returned", g.came.Add(g.ttl), pollCap+slack)
		x.unlock(next.Lock)
	}},
	{"a waiter without a wake-up gets the lock within the polling cap", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		waiting := x.waits(x.Context(), x.client(), g.Key)
		x.pause(50 * time.Millisecond)
		x.stillWaits(waiting)
		expired := time.Now()
		x.beneath.Expire(g.Key)
		next := x.got(waiting)
		x.soon("Lock returned", expired, pollCap+slack)
		x.unlock(next.Lock)
	}},
	{"a Watch that hangs costs the wake-ups and not the wait", needs(faults), func(x *fixture) {
		x.stall(Watch)
		g := x.grant(x.key("k"), x.long)
		waiting := x.waits(x.Context(), x.client(), g.Key)
		x.pause(50 * time.Millisecond)
		x.stillWaits(waiting)
		x.release(g.Lease)
		released := time.Now()
		next := x.got(waiting)
		x.soon("Lock returned", released, pollCap+slack)
		x.unlock(next.Lock)
	}},
	{"WithWait ends the wait with an error that matches ErrWaitLimit and ErrHeld", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.inTime(x.short, func(_ string, limit time.Duration) bool {
			began := time.Now()
			_, err := x.client().Lock(x.Context(), g.Key, locker.WithWait(limit))
			if took := time.Since(began); took < limit {
				x.Errorf("Lock returned after %v; the limit is %v", took, limit)
			}
			x.soon("Lock returned", began, limit+slack)
			if !errors.Is(err, locker.ErrWaitLimit) || isCtx(err) || errors.Is(err, locker.ErrLost) {
				x.Fatalf("Lock: error %v; want ErrWaitLimit", err)
			}
			return errors.Is(err, locker.ErrHeld) // on a slow machine no attempt may have been answered
		})
		x.wantHolds(g)
	}},
	{"a wait limit that is reached while the store hangs does not match ErrHeld, since the outcome is unknown", needs(faults), func(x *fixture) {
		x.inTime(4*x.short, func(key string, limit time.Duration) bool {
			g := x.grant(key, x.long)
			x.beneath.Fault(Acquire, backendtest.Hang)
			x.beneath.FaultOnce(Acquire, nil)
			began := time.Now()
			_, err := x.client().Lock(x.Context(), g.Key, locker.WithWait(limit), locker.WithTTL(x.long))
			x.soon("Lock returned", began, limit+pollCap)
			x.beneath.Fault(Acquire, nil)
			if held := (*locker.HeldError)(nil); errors.As(err, &held) && held.Attempts < 2 && !x.Bubble {
				return false // on a slow machine no attempt may have met the store that hangs
			}
			if !errors.Is(err, locker.ErrWaitLimit) || errors.Is(err, locker.ErrHeld) {
				x.Fatalf("Lock: error %v; want one that matches ErrWaitLimit, and not ErrHeld", err)
			}
			return true
		})
	}},
	{"under WithWait, Lock outlasts a store that fails, and gets the lock when it answers again", needs(faults), func(x *fixture) {
		key := x.key("k")
		x.beneath.FaultOnce(Acquire, backendtest.Fail, backendtest.Fail, backendtest.Fail)
		l, err := x.client().Lock(x.Context(), key, locker.WithWait(x.patience), locker.WithTTL(x.long))
		if err != nil {
			x.Fatalf("Lock: error %v; want the lock", err)
		}
		x.unlock(l)
	}},
	{"a wait limit that is reached while the store fails matches ErrWaitLimit and the error of the store, and not ErrHeld", needs(faults), func(x *fixture) {
		x.beneath.Fault(Acquire, backendtest.Fail)
		x.inTime(x.short, func(key string, limit time.Duration) bool {
			began := time.Now()
			_, err := x.client().Lock(x.Context(), key, locker.WithWait(limit))
			if took := time.Since(began); took < limit {
				x.Errorf("Lock returned after %v; the limit is %v", took, limit)
			}
			x.soon("Lock returned", began, limit+pollCap)
			if !errors.Is(err, locker.ErrWaitLimit) || errors.Is(err, locker.ErrHeld) {
				x.Fatalf("Lock: error %v; want one that matches ErrWaitLimit, and not ErrHeld", err)
			}
			return errors.Is(err, x.Cause) // on a slow machine no attempt may have failed by then
		})
	}},
	{"when ctx ends during the wait, Lock returns at once, and the error matches the error of the ctx, its cause, and ErrHeld", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		why := errors.New("the reason")
		x.inTime(x.short, func(_ string, limit time.Duration) bool {
			ctx, cancel := context.WithCancelCause(x.Context())
			waiting := x.waits(ctx, x.client(), g.Key)
			time.Sleep(limit)
			time.Sleep(tick) // after a pause of this machine, an attempt is due at the same time
			x.stillWaits(waiting)
			cancelled := time.Now()
			cancel(why)
			err := answer(x, "Lock returns when its ctx ends", waiting).err
			x.soon("Lock returned", cancelled, tick)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || errors.Is(err, locker.ErrWaitLimit) {
				x.Fatalf("Lock: error %v; want one that matches the error of the ctx and its cause", err)
			}
			return errors.Is(err, locker.ErrHeld) // on a slow machine no attempt may have been answered
		})
		x.release(g.Lease)
		x.emptyInTheEnd(g.Key)
	}},
	{"Lock waits for a foreign value without expiry until it is gone", needs(foreign), func(x *fixture) {
		key := x.key("k")
		x.beneath.SetForeign(key)
		waiting := x.waits(x.Context(), x.client(), key)
		x.pause(50 * time.Millisecond)
		x.stillWaits(waiting)
		deleted := time.Now()
		x.beneath.Delete(key)
		next := x.got(waiting)
		x.soon("Lock returned", deleted, pollCap+slack)
		x.unlock(next.Lock)
	}},
	{"a value of another type ends the wait with ErrForeignKey", needs(foreign), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		waiting := x.waits(x.Context(), x.client(), g.Key)
		x.pause(50 * time.Millisecond)
		x.stillWaits(waiting)
		x.beneath.SetOther(g.Key)
		err := answer(x, "Lock returns", waiting).err
		x.wantUnknown("Lock", err)
		if !errors.Is(err, locker.ErrForeignKey) {
			x.Fatalf("Lock: error %v; want one that matches ErrForeignKey", err)
		}
	}},
	{"concurrent holders of one key exclude each other, and no update is lost", nil, func(x *fixture) {
		const each = 4
		clients := []*locker.Client{x.client(locker.WithTTL(x.long)), x.client(locker.WithTTL(x.long))}
		key := x.key("k")
		var counter atomic.Int64 // read and written in two steps
		var mu sync.Mutex
		var holds []interval
		var errs []error
		together(callers/2, func(i int) {
			for range each {
				l, err := clients[i%2].Lock(x.Context(), key)
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
				hold := interval{from: time.Now()}
				n := counter.Load()
				time.Sleep(tick)
				counter.Store(n + 1)
				if hold.to = time.Now(); hold.to.After(l.Lease().Expires) {
					hold.to = l.Lease().Expires
				}
				err = l.Unlock(x.Context())
				mu.Lock()
				holds, errs = append(holds, hold), append(errs, err)
				mu.Unlock()
			}
		})
		if err := errors.Join(errs...); err != nil {
			x.Fatalf("%v", err)
		}
		if err := disjoint(holds); err != nil {
			x.Errorf("%v", err)
		}
		if got, want := counter.Load(), int64(callers/2*each); got != want {
			x.Errorf("the counter is %d after %d holds", got, want)
		}
		x.wantEmpty(key)
	}},
}

func isCtx(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

type interval struct{ from, to time.Time }

// disjoint returns an error that names two holds that overlap.
func disjoint(holds []interval) error {
	for i, a := range holds {
		for _, b := range holds[:i] {
			if a.from.Before(b.to) && b.from.Before(a.to) {
				return fmt.Errorf("two holds overlap: from %v to %v and from %v to %v", a.from, a.to, b.from, b.to)
			}
		}
	}
	return nil
}
