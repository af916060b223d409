package backendtest

import (
	"context"
	"time"
)

var renewSentences = []sentence{
	{"Renew makes a hold live for ttl from now", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		time.Sleep(5 * x.Resolution)
		x.wantLife(key, x.renew(key, "one", x.long))
		x.wantLife(key, x.renew(key, "one", 2*x.long))
	}},
	{"Renew never shortens a hold", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.renew(key, "one", x.long/2)
		x.renew(key, "one", time.Millisecond)
		x.wantLife(key, l)
	}},
	{"a renewed hold never lives shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.enter(key, "ann", "one", time.Millisecond, 1)
			began := time.Now()
			ok, err := x.nested.Renew(x.Context(), key, "one", ttl)
			if err != nil {
				x.Fatalf("Renew: %v", err)
			}
			if ok { // else it was too late, and the machine slow
				x.livesUntil(key, life{earliest: began.Add(ttl)})
			}
		}
	}},
	{"the renewal of one hold does not prolong another, nor bring it back", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "outer", x.long, 1)
		inner := x.enter(key, "ann", "inner", 20*time.Millisecond, 2)
		x.renew(key, "outer", 2*x.long)
		x.holdsBecome(key, "ann", "outer", 1, inner)
		l := x.renew(key, "outer", 3*x.long)
		x.enter(key, "ann", "outer", x.long, 1)
		x.renewNot(key, "inner", x.long)
		x.wantLife(key, l)
	}},
	{"Renew of a hold that never was says false and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.renewNot(key, "one", x.long)
		x.wantNothing(key)
		l := x.enter(key, "ann", "one", x.long, 1)
		x.renewNot(key, "two", 2*x.long)
		x.renewNot(key, "ann", 2*x.long)
		x.wantLife(key, l)
		x.enter(key, "ann", "three", x.long, 2)
	}},
	{"Renew of the last hold after its end says false and does not bring it back", func(x *fixture) {
		key := x.key("k")
		x.endOf(key, x.enter(key, "ann", "one", 10*time.Millisecond, 1))
		x.renewNot(key, "one", x.long)
		x.wantNothing(key)
	}},
	{"Renew with a ttl out of the limits is refused, and changes nothing", func(x *fixture) {
		x.outOfLimits("Renew", func(key string, ttl time.Duration) error {
			_, err := x.nested.Renew(x.Context(), key, "one", ttl)
			return err
		})
	}},
	{"Renew with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.done("Renew", func(ctx context.Context) error {
			_, err := x.nested.Renew(ctx, key, "one", 2*x.long)
			return err
		})
		x.wantLife(key, l)
	}},
}
