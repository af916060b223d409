package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var minHoldSentences = []sentence{
	{"a lock with a minimum hold is free soon after it, and not at Unlock", nil, func(x *fixture) {
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			l, err := x.client(locker.WithTTL(ttl), locker.WithMinHold(2*ttl)).Lock(x.Context(), key)
			if err != nil && !x.Bubble { // the grant came after the end of its short lease
				return false
			} else if err != nil {
				x.Fatalf("Lock: %v", err)
			}
			if err := l.Unlock(x.Context()); err != nil && !x.Bubble && !outcome.Permanent(err) && l.Lease().Ended() {
				return false // it came after the end of its short lease
			} else if err != nil {
				x.Fatalf("Unlock: %v", err)
			}
			if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrReleased) {
				x.Errorf("the context ended with cause %v; want ErrReleased", cause)
			}
			lease := l.Lease()
			lease.Expires = contract.Until(lease.Granted, 2*ttl)
			x.livesUntil(lease)
			x.soon("the lock was free", lease.Granted.Add(2*ttl), slack)
			return true
		})
	}},
	{"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithMinHold(x.long)), x.key("k"))
		x.beneath.Delete(l.Key())
		next := x.grant(l.Key(), x.long)
		x.wantLost("Unlock", l.Unlock(x.Context()))
		x.pause(10 * tick)
		x.wantHolds(next)
	}},
	{"Do releases a lock with a minimum hold at once if work fails", nil, func(x *fixture) {
		key, failure := x.key("k"), errors.New("the work has failed")
		err := x.client(locker.WithMinHold(x.long)).Do(x.Context(), key, func(context.Context, *locker.Lock) error { return failure })
		if !errors.Is(err, failure) {
			x.Fatalf("Do: %v; want the error of work", err)
		}
		x.wantEmpty(key)
	}},
	{"a minimum hold may be longer than the longest ttl, and its holder relies on the ttl", nil, func(x *fixture) {
		key, d := x.key("k"), 2*x.MaxTTL
		l := x.lock(x.client(locker.WithTTL(x.MaxTTL), locker.WithMinHold(d)), key)
		lease := l.Lease()
		if end := contract.Until(lease.Granted, x.MaxTTL); lease.Expires.After(end) {
			x.Errorf("the lease ends %v later than by its ttl", lease.Expires.Sub(end))
		}
		if err := l.Extend(x.Context(), x.MaxTTL); err != nil {
			x.Errorf("Extend: %v", err)
		}
		if end := contract.Until(time.Now(), x.MaxTTL); l.Lease().Expires.After(end) {
			x.Errorf("the extended lease ends %v later than by its ttl", l.Lease().Expires.Sub(end))
		}
		x.unlock(l)
		x.extends(grant{Lease: lease}.bare(), x.MaxTTL)
		x.beneath.Delete(key)
	}},
	{"a ttl over the limit is a permanent error under a minimum hold too, and nothing is sent", nil, func(x *fixture) {
		key := x.key("k")
		_, err := x.client(locker.WithTTL(x.MaxTTL+time.Millisecond), locker.WithMinHold(2*x.MaxTTL)).Lock(x.Context(), key)
		x.wantPermanent("Lock", err)
		x.emptyInTheEnd(key)
	}},
}
