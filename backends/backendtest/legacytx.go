package backendtest

import "time"

var txSentences = []sentence{
	{"TxExpireIf makes its own value live for ttl from now, whether that is longer or shorter", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.wantValue(key, "mine", x.txExpire(key, "mine", x.long))
		x.wantValue(key, "mine", x.txExpire(key, "mine", 2*x.long))
		x.wantValue(key, "mine", x.txExpire(key, "mine", x.long/2))
	}},
	{"TxExpireIf never makes a value live shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.put(key, "mine", x.long)
			x.livesUntil(key, x.txExpire(key, "mine", ttl))
		}
	}},
	{"TxExpireIf on another value, or none, says false and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.txExpireNot(key, "mine")
		x.txExpireNot(key, "")
		x.wantNothing(key)
		l := x.put(key, "token-42", x.long)
		for _, near := range nearToken42 {
			x.txExpireNot(key, near)
		}
		x.wantValue(key, "token-42", l)
		x.hasExpired(key)
		x.txExpireNot(key, "expired")
		x.wantNothing(key)
	}},
	{"TxExpireIf with a ttl out of the limits is refused, and the expiry stays", func(x *fixture) {
		x.badTTL("TxExpireIf", func(key string, ttl time.Duration) error {
			_, err := x.legacy.TxExpireIf(x.Context(), key, "mine", ttl)
			return err
		})
	}},
	{"TxDeleteIf removes its own value", func(x *fixture) {
		key := x.key("k")
		for _, ttl := range []time.Duration{0, x.long} {
			x.outside.Set(key, "mine", ttl)
			x.txDelete(key, "mine", true)
			x.wantNothing(key)
			x.txDelete(key, "mine", false)
		}
	}},
	{"TxDeleteIf on another value, or none, says false and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.txDelete(key, "mine", false)
		x.txDelete(key, "", false)
		l := x.put(key, "token-42", x.long)
		for _, near := range nearToken42 {
			x.txDelete(key, near, false)
		}
		x.wantValue(key, "token-42", l)
		x.hasExpired(key)
		x.txDelete(key, "expired", false)
	}},
}

// nearToken42 are values that are almost token-42.
var nearToken42 = []string{"token-4", "oken-42", "token-421", "xtoken-42", "TOKEN-42", " token-42", "token-42\n", "*", ""}
