package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// again is how soon an Unlock sends its Release once more, at the earliest.
const again = time.Second

var unlockSentences = []sentence{
	{"Unlock after the lock was lost matches ErrLost and leaves the next holder alone", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(renewed)), x.key("k"))
		x.beneath.Delete(l.Key())
		next := x.grant(l.Key(), x.long)
		_ = x.lost(l) // for any reason
		x.wantLost("Unlock", l.Unlock(x.Context()))
		x.pause(10 * tick)
		x.wantHolds(next)
	}},
	{"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone", nil, func(x *fixture) {
		for take := 1; ; take++ {
			l := x.lock(x.client(locker.WithTTL(x.long)), x.key(fmt.Sprint("k", take)))
			x.beneath.Delete(l.Key())
			next := x.grant(l.Key(), x.long)
			began := time.Now()
			err := l.Unlock(x.Context())
			x.pause(10 * tick)
			x.wantHolds(next)
			if err == nil && !x.Bubble && time.Since(began) > again && take < 10 {
				continue // the machine was slow: a second Release finds nothing, and that is right
			}
			x.wantLost("Unlock", err)
			return
		}
	}},
	{"Unlock whose reply is lost returns nil, since its second Release finds nothing", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		x.beneath.FaultOnce(Release, backendtest.LoseReply)
		x.unlock(l)
		x.wantEmpty(l.Key())
	}},
	{"Unlock whose request is lost sends it again", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		x.beneath.FaultOnce(Release, backendtest.Fail, backendtest.Fail)
		x.unlock(l)
		x.wantEmpty(l.Key())
	}},
	{"Unlock releases the lock even with a ctx that is done, or with the context of the lock", nil, func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		cancelled, cancel := context.WithCancel(x.Context())
		cancel()
		for name, with := range map[string]func(*locker.Lock) context.Context{
			"done": func(*locker.Lock) context.Context { return cancelled },
			"own":  func(l *locker.Lock) context.Context { return l.Context() },
		} {
			l := x.lock(c, x.key(name))
			began := time.Now()
			if err := l.Unlock(with(l)); err != nil && (x.Bubble || !isCtx(err)) {
				x.Errorf("Unlock with a ctx that is %s: %v", name, err)
			}
			x.soon("Unlock returned", began, slack)
			x.emptyInTheEnd(l.Key())
		}
	}},
	{"Unlock returns when its ctx ends, and goes on in the background until the lock is released", needs(faults), func(x *fixture) {
		for name, hang := range map[string]func() func(){
			"Hang": func() func() {
				x.beneath.Fault(Release, backendtest.Hang)
				return func() { x.beneath.Fault(Release, nil) }
			},
			"Stall": func() func() { return x.stall(Release) },
		} {
			l := x.lock(x.client(locker.WithTTL(x.long)), x.key(name))
			over := hang()
			x.ends(l.Unlock)
			over()
			x.emptyInTheEnd(l.Key())
		}
	}},
	{"Unlock with a ctx that is done waits for a store that hangs for a second at most", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		release := x.stall(Release)
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		began := time.Now()
		err := answer(x, "Unlock returns", x.async(func() error { return l.Unlock(ctx) }))
		x.soon("Unlock returned", began, time.Second+slack)
		x.wantUnknown("Unlock", err)
		release()
		x.emptyInTheEnd(l.Key())
	}},
	{"after an Unlock whose ctx has ended, the next holder gets the lock and keeps it", needs(faults), func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		l := x.lock(c, x.key("k"))
		x.beneath.FaultOnce(Release, backendtest.Hang, backendtest.Hang, backendtest.Hang, backendtest.Hang)
		x.ends(l.Unlock)
		next := x.got(x.waits(x.Context(), c, l.Key()))
		x.pause(10 * tick)
		if cause := context.Cause(next.Context()); cause != nil {
			x.Errorf("the next holder lost the lock: %v", cause)
		}
		x.unlock(next.Lock)
	}},
	{"Unlock returns a permanent error of Release at once", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		x.beneath.Fault(Release, backendtest.Permanent)
		began := time.Now()
		x.wantPermanent("Unlock", l.Unlock(x.Context()))
		x.soon("Unlock returned", began, slack)
		x.beneath.Fault(Release, nil)
	}},
	{"a hold that its maximum has ended leaves nothing after its lease, whether Unlock comes late or never", nil, func(x *fixture) {
		c := x.client(locker.WithTTL(renewed), locker.WithMaxHold(renewed/2))
		for name, unlock := range map[string]bool{"late": true, "never": false} {
			l := x.lock(c, x.key(name))
			_ = x.lost(l) // in real time, the lease may end first
			x.eventually("the lease has ended", func() bool { return l.Lease().Ended() })
			if unlock {
				x.wantLost("Unlock", l.Unlock(x.Context()))
			}
			x.emptyInTheEnd(l.Key())
		}
	}},
	{"a second Unlock returns the result of the first and leaves the next holder alone", nil, func(x *fixture) {
		c := x.client(locker.WithTTL(x.long))
		l := x.lock(c, x.key("k"))
		x.unlock(l)
		next := x.grant(l.Key(), x.long)
		x.unlock(l)
		x.wantHolds(next)
		x.answered(func(key string) bool {
			l := x.lock(c, key)
			x.beneath.Delete(key)
			began := time.Now()
			first := l.Unlock(x.Context())
			if !errors.Is(first, locker.ErrLost) && x.repeated(began) {
				return false
			}
			x.wantLost("Unlock", first)
			if second := l.Unlock(x.Context()); !errors.Is(second, first) {
				x.Errorf("Unlock: %v, and then %v", first, second)
			}
			return true
		})
	}},
	{"concurrent Unlocks of one lock get the same result", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		errs := make([]error, callers)
		together(callers, func(i int) { errs[i] = l.Unlock(x.Context()) })
		if err := errors.Join(errs...); err != nil {
			x.Errorf("Unlock: %v", err)
		}
		x.wantEmpty(l.Key())
	}},
	{"after Unlock the lock is not renewed any more", nil, func(x *fixture) {
		x.inTime(renewed, func(key string, ttl time.Duration) bool {
			l := x.lock(x.client(locker.WithTTL(ttl)), key)
			if err := l.Unlock(x.Context()); err != nil && (x.Bubble || !l.Lease().Ended()) {
				x.Fatalf("Unlock: %v", err)
			} else if err != nil { // its lease was short, and has ended
				return false
			}
			x.wantLost("Extend", x.extendOver(l))
			next := x.grant(l.Key(), x.short)
			x.livesUntil(next.Lease)
			x.wantEmpty(l.Key())
			return true
		})
	}},
	{"an Extend that hangs delays Unlock no longer than the ctx of Unlock, and leaves nothing", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		release := x.stall(Extend)
		x.inFlight(l)
		err := answer(x, "Unlock returns", x.async(func() error {
			ctx, cancel := context.WithTimeout(x.Context(), x.short)
			defer cancel()
			return l.Unlock(ctx)
		}))
		if err != nil && !isCtx(err) {
			x.Errorf("Unlock: %v", err)
		}
		release()
		x.emptyInTheEnd(l.Key())
	}},
}

// extendOver extends the lease of a lock after Unlock, past the Client.
func (x *fixture) extendOver(l *locker.Lock) error {
	lease := l.Lease()
	_, err := x.locker.Extend(x.Context(), contract.Lease{Key: lease.Key, Token: lease.Token, Owner: lease.Owner}, x.long)
	return err
}

// inFlight leaves an Extend of l under way, if the store hangs.
func (x *fixture) inFlight(l *locker.Lock) {
	ctx, cancel := context.WithTimeout(x.Context(), tick)
	defer cancel()
	_ = l.Extend(ctx, x.long)
}
