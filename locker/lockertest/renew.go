package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const renewed = time.Second // the first ttl of a lock that must be renewed in time

var renewSentences = []sentence{
	{"a Client renews a lock for as long as it is held", nil, func(x *fixture) {
		x.inTime(renewed, func(key string, ttl time.Duration) bool { return x.keeps(key, ttl, func() {}) })
	}},
	{"one renewal that fails does not lose the lock", needs(faults), func(x *fixture) {
		x.survives(backendtest.Fail)
	}},
	{"one renewal whose reply is lost does not lose the lock", needs(faults), func(x *fixture) {
		x.survives(backendtest.LoseReply)
	}},
	{"one renewal that hangs does not lose the lock", needs(faults), func(x *fixture) {
		x.survives(backendtest.Hang)
	}},
	{"one renewal that hangs and ignores its ctx does not lose the lock", needs(faults), func(x *fixture) {
		until := make(chan struct{})
		x.Cleanup(func() { close(until) })
		x.survives(backendtest.Stall(until, nil))
	}},
	{"without renewal a lock is lost at its Expires", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(renewed), locker.WithoutRenewal()), x.key("k"))
		expires := l.Lease().Expires
		if lost := x.lost(l); lost.Reason != locker.LostExpired {
			x.Errorf("lost: %s; want expired", lost.Reason)
		}
		if now := time.Now(); now.Before(expires) {
			x.Errorf("lost %v before Expires", expires.Sub(now))
		}
	}},
	{"a caller that looks at the context of a lock at its Expires or later finds it ended", nil, func(x *fixture) {
		c := x.client(locker.WithTTL((x.short / 2).Truncate(time.Millisecond)), locker.WithoutRenewal())
		looks := 20
		if x.Bubble {
			looks = 200
		}
		for range looks {
			l, err := c.Lock(x.Context(), x.key("k"))
			if err != nil && !x.Bubble {
				continue // the answer came after the end of this short lease
			} else if err != nil {
				x.Fatalf("Lock: %v", err)
			}
			expires := l.Lease().Expires
			together(callers, func(i int) {
				time.Sleep(time.Until(expires))
				for range 5 {
					if now := time.Now(); l.Context().Err() == nil && !now.Before(expires) {
						x.Errorf("caller %d: the context has not ended %v after Expires", i, now.Sub(expires))
						return
					}
				}
			})
			_ = l.Unlock(x.Context())
		}
	}},
	{"when the key is deleted, the context ends with ErrLost, stolen, no later than Expires", nil, func(x *fixture) {
		x.stolen(x.beneath.Delete)
	}},
	{"when another holder has taken the lock, the context ends with ErrLost, stolen, no later than Expires", nil, func(x *fixture) {
		x.stolen(func(key string) {
			x.beneath.Delete(key)
			x.grant(key, x.long)
		})
	}},
	{"when renewals fail, the context ends with ErrLost, unavailable, no later than Expires", needs(faults), func(x *fixture) {
		x.unavailable(func() { x.beneath.Fault(Extend, backendtest.Fail) })
	}},
	{"when renewals hang, the context ends with ErrLost, unavailable, no later than Expires", needs(faults), func(x *fixture) {
		x.unavailable(func() { x.beneath.Fault(Extend, backendtest.Hang) })
	}},
	{"when renewals hang and ignore their ctx, the context ends with ErrLost, unavailable, no later than Expires", needs(faults), func(x *fixture) {
		x.unavailable(func() { x.stall(Extend) })
	}},
	{"when every call hangs and ignores its ctx, the context ends with ErrLost no later than Expires", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(renewed)), x.key("k"))
		release := x.stall(All)
		_ = x.lost(l) // for any reason
		release()
		x.emptyInTheEnd(l.Key())
	}},
	{"a renewal that arrives after the lock was lost leaves nothing, and makes no lease longer", needs(faults), func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(renewed)), x.key("k"))
		release := x.stall(Extend)
		_ = x.lost(l) // for any reason
		x.eventually("the lock is free", func() bool { return !x.beneath.Holds(l.Key()) })
		var next grant
		x.eventually("the lock is granted", func() bool {
			req, began := x.request(l.Key(), x.short), time.Now()
			lease, err := x.locker.Acquire(x.Context(), req)
			// In real time a renewal from before the fault may arrive only now, and a stamp holds the lock again.
			// Or the lease has ended when the answer comes.
			if err != nil && (x.Bubble || outcome.Permanent(err)) {
				x.Fatalf("Acquire: %v; want it granted", err)
			}
			next = grant{lease, req.TTL, began, time.Now()}
			return err == nil
		})
		release()
		x.livesUntil(next.Lease)
	}},
	{"when the ctx given to Lock ends, the context of the lock ends, and the lease ends in its time", nil, func(x *fixture) {
		x.inTime(3*x.short, func(key string, ttl time.Duration) bool {
			ctx, cancel := context.WithCancelCause(x.Context())
			why := errors.New("the reason")
			l, err := x.client(locker.WithTTL(ttl)).Lock(ctx, key)
			cancel(why)
			switch {
			case err == nil:
			case x.Bubble || errors.Is(err, locker.ErrHeld) || outcome.Permanent(err):
				x.Fatalf("Lock: %v", err)
			default: // the lease may have ended when the answer came
				return false
			}
			answer(x, "the context ends", l.Context().Done())
			switch cause := context.Cause(l.Context()); {
			case !x.Bubble && errors.Is(cause, locker.ErrLost): // the lease ended before cancel
				return false
			case !errors.Is(cause, why):
				x.Errorf("the context ended with cause %v; want %v", cause, why)
			}
			x.livesUntil(l.Lease())
			return true
		})
	}},
	{"Extend makes a lock last longer at once, and never shorter", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long), locker.WithoutRenewal()), x.key("k"))
		before := l.Lease().Expires
		if err := l.Extend(x.Context(), 2*x.long); err != nil {
			x.Fatalf("Extend: %v", err)
		}
		after := l.Lease().Expires
		if latest := contract.Until(time.Now(), 2*x.long); !after.After(before) || after.After(latest) {
			x.Errorf("Expires is %v; want it after %v and at most %v", after, before, latest)
		}
		if err := l.Extend(x.Context(), contract.MinTTL); err != nil || l.Lease().Expires.Before(after) {
			x.Errorf("Extend = %v; Expires went from %v to %v", err, after, l.Lease().Expires)
		}
		x.unlock(l)
	}},
	{"Extend of a lock that another holder took matches ErrLost and ends its context", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long)), x.key("k"))
		x.beneath.Delete(l.Key())
		other := x.grant(l.Key(), x.long)
		x.wantLost("Extend", l.Extend(x.Context(), x.long))
		if lost := x.lost(l); !taken(lost) {
			x.Errorf("lost: %s; want stolen", lost.Reason)
		}
		x.wantHolds(other)
	}},
	{"WithMaxHold ends the context with ErrLost, maximum hold, and Unlock frees the lock", nil, func(x *fixture) {
		l := x.lock(x.client(locker.WithTTL(x.long), locker.WithMaxHold(3*x.short)), x.key("k"))
		answer(x, "the context ends", l.Context().Done())
		if held := time.Since(l.Lease().Granted); held < 3*x.short {
			x.Errorf("the context ended after %v", held)
		}
		x.soon("the context ended", l.Lease().Granted, 3*x.short+tick)
		var lost *locker.LostError
		if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || lost.Reason != locker.LostMaxHold {
			x.Fatalf("the context ended with cause %v; want the maximum hold", cause)
		}
		x.wantLost("Unlock", l.Unlock(x.Context()))
		x.emptyInTheEnd(l.Key())
	}},
}

// keeps reports whether a lock outlives its ttl three times. It calls trouble when it has the lock.
func (x *fixture) keeps(key string, ttl time.Duration, trouble func()) bool {
	x.Helper()
	l := x.lock(x.client(locker.WithTTL(ttl)), key)
	trouble()
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		other, err := x.locker.Acquire(x.Context(), x.request(l.Key(), x.long))
		if err == nil {
			x.release(other)
		}
		if l.Context().Err() != nil { // the machine is too slow, or another attempt was granted
			_ = l.Unlock(x.Context())
			return false
		}
		if !errors.Is(err, locker.ErrHeld) {
			x.Fatalf("Acquire of a lock that is held: error %v", err)
		}
	}
	err := l.Unlock(x.Context())
	if err != nil && !errors.Is(err, locker.ErrLost) && (x.Bubble || !l.Lease().Ended()) { // Unlock may take as long as the lease lives
		x.Fatalf("Unlock: %v", err)
	}
	return err == nil
}

func (x *fixture) survives(f backendtest.Fault) {
	x.Helper()
	x.inTime(renewed, func(key string, ttl time.Duration) bool {
		return x.keeps(key, ttl, func() { x.beneath.FaultOnce(Extend, f) })
	})
}

// stolen checks that a holder learns before Expires that its key has another value.
func (x *fixture) stolen(steal func(key string)) {
	x.Helper()
	x.inTime(renewed, func(key string, ttl time.Duration) bool {
		l := x.lock(x.client(locker.WithTTL(ttl)), key)
		steal(l.Key())
		return taken(x.lost(l)) // on a slow machine it may have expired first
	})
}

// taken reports whether the store, or too many nodes of a quorum, said that the lease is lost.
func taken(lost *locker.LostError) bool {
	return lost.Reason == locker.LostStolen || lost.Reason == locker.LostQuorum
}

// unavailable checks that a holder whose renewals fail learns in time that the lock is lost.
func (x *fixture) unavailable(trouble func()) {
	x.Helper()
	l := x.lock(x.client(locker.WithTTL(renewed)), x.key("k"))
	trouble()
	lost := x.lost(l)
	x.eventually("the lease has ended", func() bool { return l.Lease().Ended() })
	if x.Bubble && lost.Reason != locker.LostUnavailable { // on a slow machine no renewal may have been sent
		x.Errorf("lost: %s; want unavailable", lost.Reason)
	}
	x.wantLost("Unlock", l.Unlock(x.Context()))
	x.emptyInTheEnd(l.Key())
}
