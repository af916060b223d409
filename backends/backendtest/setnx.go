package backendtest

import (
	"strings"
	"time"
)

var setNXSentences = []sentence{
	{"a free key is granted, with its value and its ttl", func(x *fixture) {
		key := x.key("k")
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
	}},
	{"a key that is held is refused, and Left says how long that value still lives", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		time.Sleep(5 * x.Resolution) // so that the time left is not the ttl
		x.refuse(key, "mine", 2*x.long, l)
		x.refuse(key, "mine", x.long/2, l)
	}},
	{"a refused SetNX leaves the value and its expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.refuse(key, "mine", 2*x.long, l)
		x.wantValue(key, "theirs", l)
		x.refuse(key, "mine", x.long/2, l)
		x.wantValue(key, "theirs", l)
	}},
	{"a repeated SetNX of the same value is granted, and the value lives for ttl from then on", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		time.Sleep(5 * x.Resolution)
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
		x.wantValue(key, "mine", x.grant(key, "mine", 2*x.long))
	}},
	{"a repeated SetNX of the same value never makes it live shorter, after an extension either", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 2*x.long)
		x.grant(key, "mine", x.long)
		x.wantValue(key, "mine", l)
		l = x.extend(key, "mine", 3*x.long)
		x.grant(key, "mine", x.long)
		x.wantValue(key, "mine", l)
	}},
	{"SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored", func(x *fixture) {
		x.refusesTTL(x.MaxTTL+time.Millisecond, x.MaxTTL.String())
		x.refusesTTL(24*x.MaxTTL, x.MaxTTL.String())
	}},
	{"SetNX with a ttl of the limit is granted", func(x *fixture) {
		key := x.key("k")
		x.wantValue(key, "mine", x.grant(key, "mine", x.MaxTTL))
	}},
	{"SetNX with a ttl under a millisecond is refused, nothing is stored", func(x *fixture) {
		x.refusesTTL(time.Millisecond-1, "")
		x.refusesTTL(1, "")
		x.refusesTTL(0, "") // which some servers take for no expiry
		x.refusesTTL(-x.long, "")
	}},
}

func (x *fixture) refusesTTL(ttl time.Duration, named string) {
	x.Helper()
	free, held := x.key("free"), x.key("held")
	l := x.grant(held, "mine", x.long)
	for _, key := range []string{free, held} {
		res, err := x.store.SetNX(x.Context(), key, "mine", ttl)
		if err == nil || res.OK {
			x.Fatalf("SetNX with a ttl of %v = %+v, %v; want an error", ttl, res, err)
		}
		x.wantPermanent("SetNX", err)
		if !strings.Contains(err.Error(), named) {
			x.Errorf("error %q does not name the limit as %s", err, named)
		}
	}
	x.wantNothing(free)
	x.wantValue(held, "mine", l)
	x.remove(held, "mine")
}

var expirySentences = []sentence{
	{"a value never lives shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.livesUntil(key, x.grant(key, "mine", ttl))
		}
	}},
	{"a value that was granted again never lives shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.grant(key, "mine", max(ttl-2*time.Millisecond, time.Millisecond))
			x.livesUntil(key, x.grant(key, "mine", ttl))
		}
	}},
	{"a value is gone soon after its ttl", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 20*time.Millisecond)
		x.eventually("the value is gone", l, func() bool {
			_, _, ok := x.outside.Get(key)
			return !ok
		})
	}},
	{"a key is free again when its value has expired, and not before", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", 20*time.Millisecond)
		var mine life
		x.eventually("the key is free", l, func() bool {
			began := time.Now()
			res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
			ended := time.Now()
			if err != nil || res.OK && ended.Before(l.earliest) {
				x.Fatalf("SetNX = %+v, %v; %v before the end of the present value", res, err, l.earliest.Sub(ended))
			}
			mine = life{began.Add(x.long), ended.Add(x.long)}
			return res.OK
		})
		x.wantValue(key, "mine", mine)
	}},
}

// fractions are ttls that a store cannot round down unseen, if it keeps milliseconds.
var fractions = []time.Duration{15400 * time.Microsecond, 10999 * time.Microsecond, 1900 * time.Microsecond}

// livesUntil asserts nothing about a reading that arrived when the value may have ended.
func (x *fixture) livesUntil(key string, l life) {
	x.Helper()
	for time.Now().Before(l.earliest) {
		_, _, ok := x.outside.Get(key)
		if now := time.Now(); !ok && now.Before(l.earliest) {
			x.Fatalf("the value is gone %v too early", l.earliest.Sub(now))
		}
		time.Sleep(tick)
	}
}
