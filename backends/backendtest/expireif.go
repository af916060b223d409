package backendtest

import (
	"strings"
	"time"
)

var expireIfSentences = []sentence{
	{"ExpireIf makes its own value live for ttl from now", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		time.Sleep(5 * x.Resolution)
		x.wantValue(key, "mine", x.extend(key, "mine", x.long))
		x.wantValue(key, "mine", x.extend(key, "mine", 2*x.long))
	}},
	{"ExpireIf never shortens a life", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.extend(key, "mine", x.long/2)
		x.wantValue(key, "mine", l)
		x.extend(key, "mine", time.Millisecond)
		x.wantValue(key, "mine", l)
	}},
	{"an extended value never lives shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.grant(key, "mine", time.Millisecond)
			began := time.Now()
			ok, err := x.store.ExpireIf(x.Context(), key, "mine", ttl)
			if err != nil {
				x.Fatalf("ExpireIf: %v", err)
			}
			if ok { // else it was too late, and the machine slow
				x.livesUntil(key, life{earliest: began.Add(ttl)})
			}
		}
	}},
	{"ExpireIf on another value says false and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.extendNot(key, "mine", 2*x.long)
		x.wantValue(key, "theirs", l)
		x.extendNot(key, "mine", x.long/2)
		x.wantValue(key, "theirs", l)
	}},
	{"ExpireIf on an absent key says false and creates nothing", func(x *fixture) {
		key := x.key("k")
		x.extendNot(key, "mine", x.long)
		x.wantNothing(key)
	}},
	{"ExpireIf on an expired value says false and does not bring it back", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 10*time.Millisecond)
		x.eventually("the value is gone", l, func() bool {
			_, _, ok := x.outside.Get(key)
			return !ok
		})
		x.extendNot(key, "mine", x.long)
		x.wantNothing(key)
	}},
	{"ExpireIf with a ttl over the limit is refused, the error names the limit, the expiry stays", func(x *fixture) {
		x.refusesExtension(x.MaxTTL+time.Millisecond, x.MaxTTL.String())
	}},
	{"ExpireIf with a ttl under a millisecond is refused, the expiry stays", func(x *fixture) {
		x.refusesExtension(time.Millisecond-1, "")
		x.refusesExtension(0, "")
		x.refusesExtension(-x.long, "") // which some servers take for a deletion
	}},
}

func (x *fixture) refusesExtension(ttl time.Duration, named string) {
	x.Helper()
	key := x.key("k")
	l := x.grant(key, "mine", x.long)
	ok, err := x.store.ExpireIf(x.Context(), key, "mine", ttl)
	if err == nil || ok {
		x.Fatalf("ExpireIf with a ttl of %v = %v, %v; want an error", ttl, ok, err)
	}
	x.wantPermanent("ExpireIf", err)
	if !strings.Contains(err.Error(), named) {
		x.Errorf("error %q does not name the limit as %s", err, named)
	}
	x.wantValue(key, "mine", l)
}
