package backendtest

import "time"

var expireSentences = []sentence{
	{"MaxTTL is the limit of a ttl", func(x *fixture) {
		if limit := x.legacy.MaxTTL(); limit != x.MaxTTL {
			x.Errorf("MaxTTL = %v; want %v", limit, x.MaxTTL)
		}
	}},
	{"Left says how long a value still lives, 0 if it has no expiry, and whether there is one", func(x *fixture) {
		key := x.key("k")
		check := func(want bool) time.Duration {
			left, found, err := x.legacy.Left(x.Context(), key)
			if err != nil || found != want {
				x.Fatalf("Left(%.60q) = %v, %v, %v; want %v", key, left, found, err, want)
			}
			return left
		}
		never := func(found bool) {
			if left := check(found); left != 0 {
				x.Fatalf("Left says %v; want 0", left)
			}
		}
		never(false)
		x.outside.Set(key, "theirs", 0)
		never(true)
		x.outside.SetOther(key)
		never(true)
		l := x.put(key, "theirs", x.long)
		time.Sleep(5 * x.Resolution)
		began := time.Now()
		x.within(l, "the value", check(true), began, time.Now())
		x.hasExpired(key)
		never(false)
	}},
	{"Expire makes any value live for ttl from now, whether that is longer or shorter", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		x.wantValue(key, "theirs", x.expire(key, x.long))
		x.wantValue(key, "theirs", x.expire(key, 2*x.long))
		x.wantValue(key, "theirs", x.expire(key, x.long/2))
		x.outside.SetOther(key)
		x.wantValue(key, "", x.expire(key, x.long))
	}},
	{"Expire never makes a value live shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.put(key, "theirs", x.long)
			x.livesUntil(key, x.expire(key, ttl))
		}
	}},
	{"a value is gone soon after the ttl that Expire gave it", func(x *fixture) {
		key := x.key("k")
		x.put(key, "theirs", x.long)
		x.gone(key, x.expire(key, 20*time.Millisecond))
	}},
	{"Expire of a free key says false and creates nothing", func(x *fixture) {
		key := x.key("k")
		for range 2 {
			if found, err := x.legacy.Expire(x.Context(), key, x.long); err != nil || found {
				x.Fatalf("Expire = %v, %v; want false", found, err)
			}
			x.wantNothing(key)
			x.hasExpired(key)
		}
	}},
	{"Expire with a ttl out of the limits is refused, and the expiry stays", func(x *fixture) {
		x.badTTL("Expire", func(key string, ttl time.Duration) error {
			_, err := x.legacy.Expire(x.Context(), key, ttl)
			return err
		})
	}},
}
