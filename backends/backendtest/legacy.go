package backendtest

import (
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofLegacy = suite[backends.LegacyStore, Outside]{
	sentences: func(LegacyHarness) []sentence {
		return slices.Concat(setSentences, expireSentences, txSentences, bitSentences, legacyRefusalSentences, legacyManySentences)
	},
	give: func(x *fixture, store backends.LegacyStore, _ Outside) { x.legacy = store },
}

// put stores a value from outside.
func (x *fixture) put(key, value string, ttl time.Duration) life {
	began := time.Now()
	x.outside.Set(key, value, ttl)
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// gone waits until key is free since its value, with that life, has expired.
func (x *fixture) gone(key string, l life) {
	x.Helper()
	x.eventually("the value is gone", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
}

// hasExpired leaves key free, since the value "expired" has.
func (x *fixture) hasExpired(key string) {
	x.Helper()
	x.gone(key, x.put(key, "expired", 5*time.Millisecond))
}

func (x *fixture) setForever(key, value string, want bool) {
	x.Helper()
	if ok, err := x.legacy.SetNXForever(x.Context(), key, value); err != nil || ok != want {
		x.Fatalf("SetNXForever(%.60q, %.60q) = %v, %v; want %v", key, value, ok, err, want)
	}
}

func (x *fixture) get(key, want string, there bool) {
	x.Helper()
	if value, found, err := x.legacy.Get(x.Context(), key); err != nil || value != want || found != there {
		x.Fatalf("Get(%.60q) = %.60q, %v, %v; want %.60q, %v", key, value, found, err, want, there)
	}
}

func (x *fixture) getSet(key, value, want string, there bool) {
	x.Helper()
	if old, found, err := x.legacy.GetSet(x.Context(), key, value); err != nil || old != want || found != there {
		x.Fatalf("GetSet(%.60q, %.60q) = %.60q, %v, %v; want %.60q, %v", key, value, old, found, err, want, there)
	}
}

func (x *fixture) deletes(key string, want bool) {
	x.Helper()
	if found, err := x.legacy.Delete(x.Context(), key); err != nil || found != want {
		x.Fatalf("Delete(%.60q) = %v, %v; want %v", key, found, err, want)
	}
}

func (x *fixture) expire(key string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	if found, err := x.legacy.Expire(x.Context(), key, ttl); err != nil || !found {
		x.Fatalf("Expire(%.60q, %v) = %v, %v; want true", key, ttl, found, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

func (x *fixture) txExpire(key, value string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	if ok, err := x.legacy.TxExpireIf(x.Context(), key, value, ttl); err != nil || !ok {
		x.Fatalf("TxExpireIf(%.60q, %.60q, %v) = %v, %v; want true", key, value, ttl, ok, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

func (x *fixture) txExpireNot(key, value string) {
	x.Helper()
	for _, ttl := range []time.Duration{x.long / 2, 2 * x.long} {
		if ok, err := x.legacy.TxExpireIf(x.Context(), key, value, ttl); err != nil || ok {
			x.Fatalf("TxExpireIf(%.60q, %.60q, %v) = %v, %v; want false", key, value, ttl, ok, err)
		}
	}
}

func (x *fixture) txDelete(key, value string, want bool) {
	x.Helper()
	if ok, err := x.legacy.TxDeleteIf(x.Context(), key, value); err != nil || ok != want {
		x.Fatalf("TxDeleteIf(%.60q, %.60q) = %v, %v; want %v", key, value, ok, err, want)
	}
}

func (x *fixture) bit(key string, offset uint32, want bool) {
	x.Helper()
	if on, err := x.legacy.GetBit(x.Context(), key, offset); err != nil || on != want {
		x.Fatalf("GetBit(%.60q, %d) = %v, %v; want %v", key, offset, on, err, want)
	}
}

func (x *fixture) setBit(key string, offset uint32, on, want bool) {
	x.Helper()
	if was, err := x.legacy.SetBit(x.Context(), key, offset, on); err != nil || was != want {
		x.Fatalf("SetBit(%.60q, %d, %v) = %v, %v; want %v", key, offset, on, was, err, want)
	}
}

// badTTL checks that call, which gives "mine" another life, is refused for a bad ttl.
func (x *fixture) badTTL(name string, call func(key string, ttl time.Duration) error) {
	x.Helper()
	key := x.key("k")
	l := x.put(key, "mine", x.long)
	for _, ttl := range []time.Duration{x.MaxTTL + time.Millisecond, time.Millisecond - 1, 0, -x.long} {
		err := call(key, ttl)
		if err == nil {
			x.Fatalf("%s with a ttl of %v: no error", name, ttl)
		}
		x.wantPermanent(name, err)
		if ttl > x.MaxTTL && !strings.Contains(err.Error(), x.MaxTTL.String()) {
			x.Errorf("error %q does not name the limit as %v", err, x.MaxTTL)
		}
		x.wantValue(key, "mine", l)
	}
}
