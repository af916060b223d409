package lockertest

import "sync/atomic"

var releaseSentences = []sentence{
	{"Release by the holder frees the lock and leaves nothing", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.release(g.Lease)
		x.wantEmpty(g.Key)
		x.grant(g.Key, x.long)
	}},
	{"a second Release matches ErrLost", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.release(g.Lease)
		x.wantLost("Release", x.locker.Release(x.Context(), g.Lease))
		x.wantEmpty(g.Key)
	}},
	{"Release of a lease that the store ended too soon matches ErrLost", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.beneath.Expire(g.Key)
		x.wantLost("Release", x.locker.Release(x.Context(), g.Lease))
	}},
	{"a stale Release matches ErrLost and leaves the lease of the next holder alone", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		x.release(g.Lease)
		next := x.grant(g.Key, x.long)
		x.wantLost("Release", x.locker.Release(x.Context(), g.Lease))
		x.wantLost("Release", x.locker.Release(x.Context(), g.bare()))
		x.heldBy(next, x.long)
		x.wantHolds(next)
	}},
	{"Release with a wrong token matches ErrLost and changes nothing", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		guess := g.Lease
		for _, guess.Token = range []string{"*", g.Token + "x", g.Token[:len(g.Token)-1]} {
			x.wantLost("Release", x.locker.Release(x.Context(), guess))
			_, err := x.locker.Extend(x.Context(), guess, x.long)
			x.wantLost("Extend", err)
		}
		x.wantHolds(g)
	}},
	{"of concurrent Releases exactly one succeeds", nil, func(x *fixture) {
		for range rounds {
			g := x.grant(x.key("k"), x.long)
			var released atomic.Int64
			errs := make([]error, callers)
			together(callers, func(i int) {
				if errs[i] = x.locker.Release(x.Context(), g.Lease); errs[i] == nil {
					released.Add(1)
				}
			})
			if n := released.Load(); n != 1 {
				x.Fatalf("%d of %d Releases succeeded", n, callers)
			}
			for _, err := range errs {
				if err != nil {
					x.wantLost("Release", err)
				}
			}
			x.wantEmpty(g.Key)
		}
	}},
}

// endings are ways in which a lease ends before its time.
func (x *fixture) endings() []func(g grant) {
	return []func(g grant){
		func(g grant) { x.release(g.Lease) },
		func(g grant) { x.beneath.Expire(g.Key) },
	}
}
