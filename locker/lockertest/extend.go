package lockertest

import (
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var extendSentences = []sentence{
	{"Extend moves Expires to ttl minus the margin from now", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		time.Sleep(5 * time.Millisecond)
		after, err := x.locker.Extend(x.Context(), g.Lease, 2*x.long)
		if err != nil {
			x.Fatalf("Extend: %v", err)
		}
		if latest := contract.Until(time.Now(), 2*x.long); !after.Expires.After(g.Expires) || after.Expires.After(latest) {
			x.Errorf("Expires is %v; want it after %v and at most %v", after.Expires, g.Expires, latest)
		}
		if after.Key != g.Key || after.Token != g.Token || after.Fence != g.Fence || !after.Granted.Equal(g.Granted) {
			x.Errorf("Extend turned %#v into %#v", g.Lease, after)
		}
	}},
	{"an extended lease lasts until its new Expires, and no longer", nil, func(x *fixture) {
		x.inTime(x.short, func(key string, ttl time.Duration) bool {
			g := x.grant(key, ttl)
			time.Sleep(ttl / 3)
			after, err := x.locker.Extend(x.Context(), g.Lease, 2*ttl)
			if err != nil {
				return false
			}
			x.livesUntil(after)
			return true
		})
	}},
	{"a slow answer does not make an extension longer", needs(faults), func(x *fixture) {
		x.inTime(2*x.short, func(key string, ttl time.Duration) bool {
			g := x.grant(key, ttl)
			x.beneath.FaultOnce(Extend, backendtest.LateReply(ttl/2))
			after, err := x.locker.Extend(x.Context(), g.Lease, ttl)
			if err != nil {
				return false
			}
			x.livesUntil(after)
			return true
		})
	}},
	{"Extend with a shorter ttl does not shorten the lease", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		after, err := x.locker.Extend(x.Context(), g.Lease, contract.MinTTL)
		if err != nil {
			x.Fatalf("Extend: %v", err)
		}
		if after.Expires.Before(g.Expires) {
			x.Errorf("Expires went back by %v", g.Expires.Sub(after.Expires))
		}
		x.pause(2 * contract.MinTTL)
		x.heldBy(g, x.long)
	}},
	{"Extend and Release need only the Key and the Token of a lease", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		named := contract.Lease{Key: g.Key, Token: g.Token}
		after, err := x.locker.Extend(x.Context(), named, 2*x.long)
		if err != nil {
			x.Fatalf("Extend: %v", err)
		}
		if !after.Expires.After(g.Expires) {
			x.Errorf("Expires is %v; want it after %v", after.Expires, g.Expires)
		}
		x.release(named)
		x.wantEmpty(g.Key)
	}},
	{"Extend after the end of the lease matches ErrLost and does not bring it back", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.short)
		x.eventually("the lease has ended", func() bool { return !x.beneath.Holds(g.Key) && g.Ended() })
		x.cannotExtend(g)
		x.wantEmpty(g.Key)
		x.grant(g.Key, x.long)
	}},
	{"Extend after the key was deleted matches ErrLost and does not bring it back", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Delete(g.Key)
		x.cannotExtend(g)
		x.wantEmpty(g.Key)
		x.grant(g.Key, x.long)
	}},
	{"Extend after the store ended the lease too soon matches ErrLost and does not bring it back", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Expire(g.Key)
		x.cannotExtend(g)
		x.wantEmpty(g.Key)
		x.grant(g.Key, x.long)
	}},
	{"Extend after another holder took the lock matches ErrLost and leaves its lease alone", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Delete(g.Key)
		other := x.grant(g.Key, x.long)
		x.cannotExtend(g)
		x.heldBy(other, x.long)
		x.wantHolds(other)
	}},
	{"Extend after another holder took the lock does not move the end of its lease", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Delete(g.Key)
		other := x.grant(g.Key, x.short)
		x.cannotExtend(g)
		x.livesUntil(other.Lease)
	}},
	{"Extend after Release matches ErrLost and does not bring the lease back", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.release(g.Lease)
		x.cannotExtend(g)
		x.wantEmpty(g.Key)
	}},
}

// cannotExtend checks that Extend finds g lost: by the Expires of the lease, and by the store.
func (x *fixture) cannotExtend(g grant) {
	x.Helper()
	for _, lease := range []contract.Lease{g.Lease, g.bare()} {
		_, err := x.locker.Extend(x.Context(), lease, 2*x.long)
		x.wantLost("Extend", err)
	}
}
