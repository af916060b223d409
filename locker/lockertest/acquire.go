package lockertest

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const (
	callers = 16
	rounds  = 3
)

var acquireSentences = []sentence{
	{"a free lock is granted, with the key, the token and the owner of the request", nil, func(x *fixture) {
		req := x.request(x.key("k"), x.long)
		req.Owner = "ann"
		g := x.granted(req)
		if g.Key != req.Key || g.Token != req.Token || g.Owner != req.Owner {
			x.Errorf("the lease is %v of owner %q; want those of the request", g.Lease, g.Owner)
		}
		if !x.beneath.Holds(req.Key) {
			x.Errorf("the key is empty")
		}
	}},
	{"Granted is during the call, and Expires is at most ttl minus the margin after Granted", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		if g.Granted.Before(g.began) || g.Granted.After(g.came) {
			x.Errorf("Granted is %v; the call took from %v to %v", g.Granted, g.began, g.came)
		}
		if until := contract.Until(g.Granted, x.long); g.Expires.After(until) {
			x.Errorf("Expires is %v; want %v at most", g.Expires, until)
		}
		if half := g.began.Add(x.long / 2); g.Expires.Before(half) {
			x.Errorf("Expires is %v; at %v half of the ttl is left", g.Expires, half)
		}
	}},
	{"Acquire of a held lock returns a *HeldError that matches ErrHeld and no other error", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		time.Sleep(20 * time.Millisecond) // so that Left is not the ttl
		x.heldBy(g, 2*x.long)
		x.heldBy(g, x.long/4)
	}},
	{"an attempt that finds the lock held leaves the lease of the holder alone", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.heldBy(g, x.long)
		x.wantHolds(g)
		x.heldBy(g, x.long)
		x.release(g.Lease)
	}},
	{"an attempt that finds the lock held does not move the end of the holder's lease", nil, func(x *fixture) {
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			g := x.grant(key, ttl)
			began := time.Now()
			_, later := x.locker.Acquire(x.Context(), x.request(g.Key, x.long))
			_, sooner := x.locker.Acquire(x.Context(), x.request(g.Key, contract.MinTTL))
			if later == nil || sooner == nil {
				return false // livesUntil finds whether that was wrong
			}
			x.wantHeld(later, g, began)
			x.livesUntil(g.Lease)
			return true
		})
	}},
	{"a lock is held for its own owner too, if the token is new", nil, func(x *fixture) {
		req := x.request(x.key("k"), x.long)
		req.Owner = "ann"
		g := x.granted(req)
		again := x.request(req.Key, x.long)
		again.Owner = "ann"
		began := time.Now()
		_, err := x.locker.Acquire(x.Context(), again)
		x.wantHeld(err, g, began)
	}},
	{"a second Acquire with the same token is granted, for ttl from then on", nil, func(x *fixture) {
		req := x.request(x.key("k"), x.long)
		first := x.granted(req)
		time.Sleep(5 * time.Millisecond)
		again := x.granted(req)
		if again.Token != req.Token || !again.Expires.After(first.Expires) {
			x.Errorf("the second grant ends at %v; the first ends at %v", again.Expires, first.Expires)
		}
		x.heldBy(again, x.long)
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			req := x.request(key, ttl)
			if _, err := x.locker.Acquire(x.Context(), req); err != nil {
				return false
			}
			time.Sleep(ttl / 2)
			lease, err := x.locker.Acquire(x.Context(), req)
			if err != nil {
				return false
			}
			x.livesUntil(lease)
			return true
		})
	}},
	{"a second Acquire with the token of a lease that has ended finds the lock held by the next holder", nil, func(x *fixture) {
		for i, end := range x.endings() {
			req := x.request(x.key(strconv.Itoa(i)), x.long)
			end(x.granted(req))
			next := x.grant(req.Key, x.long)
			began := time.Now()
			_, err := x.locker.Acquire(x.Context(), req)
			x.wantHeld(err, next, began)
			x.wantHolds(next)
		}
	}},
	{"two grants of the same token count once: one Release frees the lock", nil, func(x *fixture) {
		req := x.request(x.key("k"), x.long)
		x.granted(req)
		x.release(x.granted(req).Lease)
		x.wantEmpty(req.Key)
		x.grant(req.Key, x.long)
	}},
	{"locks of different keys do not affect each other", nil, func(x *fixture) {
		one, two := x.grant(x.key("one"), x.long), x.grant(x.key("two"), x.long)
		x.release(one.Lease)
		x.wantHolds(two)
		x.heldBy(two, x.long)
	}},
	{"of concurrent attempts exactly one is granted", nil, func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var winners atomic.Int64
			var won atomic.Pointer[contract.Lease]
			began := time.Now()
			errs := make([]error, callers)
			together(callers, func(i int) {
				lease, err := x.locker.Acquire(x.Context(), x.request(key, x.long))
				if errs[i] = err; err == nil {
					winners.Add(1)
					won.Store(&lease)
				}
			})
			if n := winners.Load(); n != 1 {
				x.Fatalf("%d of %d attempts were granted", n, callers)
			}
			g := grant{*won.Load(), x.long, began, time.Now()}
			for _, err := range errs {
				if err != nil {
					x.wantHeld(err, g, began)
				}
			}
			x.wantHolds(g)
		}
	}},
	{"the numbers of the grants of a key rise, or are all 0", nil, func(x *fixture) {
		key := x.key("k")
		first := x.grant(key, x.long)
		x.release(first.Lease)
		last := first.Fence
		for range rounds {
			g := x.grant(key, x.long)
			if (first.Fence != 0 || g.Fence != 0) && g.Fence <= last {
				x.Errorf("the number %d follows %d", g.Fence, last)
			}
			last = g.Fence
			x.release(g.Lease)
		}
		g := x.grant(key, x.long)
		x.beneath.Expire(key)
		if next := x.grant(key, x.long); first.Fence != 0 && next.Fence <= g.Fence {
			x.Errorf("after an expiry the number %d follows %d", next.Fence, g.Fence)
		}
	}},
}

var expirySentences = []sentence{
	{"a lease lasts until its Expires, and soon after that the lock is free", nil, func(x *fixture) {
		for _, ttl := range []time.Duration{x.short, 37 * time.Millisecond} {
			x.livesUntil(x.grant(x.key(ttl.String()), ttl).Lease)
		}
	}},
	{"a slow answer does not make the lease longer", needs(faults), func(x *fixture) {
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			x.beneath.FaultOnce(Acquire, backendtest.LateReply(ttl/2))
			req := x.request(key, ttl)
			lease, err := x.locker.Acquire(x.Context(), req)
			if err != nil {
				return false
			}
			x.livesUntil(lease)
			return true
		})
	}},
	{"a grant whose answer comes after its end is not granted", needs(faults), func(x *fixture) {
		x.beneath.FaultOnce(Acquire, backendtest.LateReply(2*x.short))
		key := x.key("k")
		_, err := x.locker.Acquire(x.Context(), x.request(key, x.short))
		x.wantUnknown("Acquire", err)
		x.emptyInTheEnd(key)
	}},
}
