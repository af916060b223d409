package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofLegacy = suite[backends.LegacyStore, Outside]{
	sentences: func(LegacyHarness) []sentence {
		return slices.Concat(setSentences, expireSentences, txSentences, bitSentences, legacyRefusalSentences, legacyManySentences)
	},
	give: func(x *fixture, store backends.LegacyStore, _ Outside) { x.legacy = store },
}

var setSentences = []sentence{
	{"SetNXForever stores a value without expiry if the key is free", func(x *fixture) {
		key := x.key("k")
		x.setForever(key, "mine", true)
		x.wantForever(key, "mine")
	}},
	{"SetNXForever of a held key returns false and changes nothing, even with the same value", func(x *fixture) {
		key, forever := x.key("k"), x.key("forever")
		l := x.put(key, "theirs", x.long)
		x.outside.Set(forever, "theirs", 0)
		for _, value := range []string{"mine", "theirs", ""} {
			x.setForever(key, value, false)
			x.wantValue(key, "theirs", l)
			x.setForever(forever, value, false)
			x.wantForever(forever, "theirs")
		}
		other := x.key("other")
		x.outside.SetOther(other)
		x.setForever(other, "mine", false)
		x.wantForever(other, "")
	}},
	{"SetNXForever stores a value if the last one has expired", func(x *fixture) {
		key := x.key("k")
		x.hasExpired(key)
		x.setForever(key, "mine", true)
		x.wantForever(key, "mine")
	}},
	{"Get returns the value, and whether there is one", func(x *fixture) {
		key, empty := x.key("k"), x.key("empty")
		x.get(key, "", false)
		x.wantNothing(key)
		l := x.put(key, "theirs", x.long)
		x.get(key, "theirs", true)
		x.wantValue(key, "theirs", l)
		x.outside.Set(empty, "", 0)
		x.get(empty, "", true)
		x.hasExpired(key)
		x.get(key, "", false)
	}},
	{"GetSet stores a value without expiry whatever was there, and returns the old value", func(x *fixture) {
		key := x.key("k")
		x.getSet(key, "one", "", false)
		x.wantForever(key, "one")
		x.getSet(key, "two", "one", true)
		x.wantForever(key, "two")
		x.put(key, "theirs", x.long)
		x.getSet(key, "three", "theirs", true)
		x.wantForever(key, "three")
		x.getSet(key, "three", "three", true)
		x.getSet(key, "", "three", true)
		x.getSet(key, "four", "", true)
		x.hasExpired(key)
		x.getSet(key, "five", "", false)
		x.wantForever(key, "five")
	}},
	{"Delete removes any value, and returns whether there was one", func(x *fixture) {
		key := x.key("k")
		for range 2 {
			x.put(key, "theirs", x.long)
			x.deletes(key, true)
			x.wantNothing(key)
			x.deletes(key, false)
		}
		x.outside.SetOther(key)
		x.deletes(key, true)
		x.wantNothing(key)
		x.hasExpired(key)
		x.deletes(key, false)
	}},
}

var expireSentences = []sentence{
	{"MaxTTL returns the limit of a ttl", func(x *fixture) {
		if limit := x.legacy.MaxTTL(); limit != x.MaxTTL {
			x.Errorf("MaxTTL = %v; want %v", limit, x.MaxTTL)
		}
	}},
	{"Left returns the remaining life of a value, 0 without expiry, and whether there is a value", func(x *fixture) {
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
				x.Fatalf("Left = %v; want 0", left)
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
	{"Expire makes any value live for ttl from now, even if that is shorter", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		x.wantValue(key, "theirs", x.expire(key, x.long))
		x.wantValue(key, "theirs", x.expire(key, 2*x.long))
		x.wantValue(key, "theirs", x.expire(key, x.long/2))
		x.outside.SetOther(key)
		x.wantValue(key, "", x.expire(key, x.long))
	}},
	{"a value never lives shorter than the ttl of its Expire, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.put(key, "theirs", x.long)
			x.livesUntil(key, x.expire(key, ttl))
		}
	}},
	{"a value is gone soon after the ttl of its Expire", func(x *fixture) {
		key := x.key("k")
		x.put(key, "theirs", x.long)
		x.gone(key, x.expire(key, 20*time.Millisecond))
	}},
	{"Expire of an absent key returns false and creates nothing", func(x *fixture) {
		key := x.key("k")
		for range 2 {
			if found, err := x.legacy.Expire(x.Context(), key, x.long); err != nil || found {
				x.Fatalf("Expire = %v, %v; want false", found, err)
			}
			x.wantNothing(key)
			x.hasExpired(key)
		}
	}},
	{"Expire with a ttl outside the limits is a permanent error, and the expiry stays", func(x *fixture) {
		x.badTTL("Expire", func(key string, ttl time.Duration) error {
			_, err := x.legacy.Expire(x.Context(), key, ttl)
			return err
		})
	}},
}

var txSentences = []sentence{
	{"TxExpireIf makes a value that matches live for ttl from now, even if that is shorter", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.wantValue(key, "mine", x.txExpire(key, "mine", x.long))
		x.wantValue(key, "mine", x.txExpire(key, "mine", 2*x.long))
		x.wantValue(key, "mine", x.txExpire(key, "mine", x.long/2))
	}},
	{"a value never lives shorter than the ttl of its TxExpireIf, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.put(key, "mine", x.long)
			x.livesUntil(key, x.txExpire(key, "mine", ttl))
		}
	}},
	{"TxExpireIf of another value, or of an absent key, returns false and changes nothing", func(x *fixture) {
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
	{"TxExpireIf with a ttl outside the limits is a permanent error, and the expiry stays", func(x *fixture) {
		x.badTTL("TxExpireIf", func(key string, ttl time.Duration) error {
			_, err := x.legacy.TxExpireIf(x.Context(), key, "mine", ttl)
			return err
		})
	}},
	{"TxDeleteIf removes a value that matches", func(x *fixture) {
		key := x.key("k")
		for _, ttl := range []time.Duration{0, x.long} {
			x.outside.Set(key, "mine", ttl)
			x.txDelete(key, "mine", true)
			x.wantNothing(key)
			x.txDelete(key, "mine", false)
		}
	}},
	{"TxDeleteIf of another value, or of an absent key, returns false and changes nothing", func(x *fixture) {
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

// nearToken42 are values that are almost "token-42".
var nearToken42 = []string{"token-4", "oken-42", "token-421", "xtoken-42", "TOKEN-42", " token-42", "token-42\n", "*", ""}

var bitSentences = []sentence{
	{"GetBit of an absent key returns off, and creates nothing", func(x *fixture) {
		key := x.key("k")
		x.bit(key, 0, false)
		x.bit(key, 1000, false)
		x.wantNothing(key)
		x.hasExpired(key)
		x.bit(key, 0, false)
	}},
	{"SetBit sets a bit and returns the old one", func(x *fixture) {
		key := x.key("k")
		for _, offset := range []uint32{0, 7, 8, 1000} {
			x.setBit(key, offset, true, false)
			x.bit(key, offset, true)
			x.setBit(key, offset, true, true)
			x.setBit(key, offset, false, true)
			x.bit(key, offset, false)
			x.setBit(key, offset, false, false)
			x.setBit(key, offset, true, false)
		}
	}},
	{"SetBit changes no other bit", func(x *fixture) {
		key := x.key("k")
		for _, offset := range []uint32{17, 3, 0} {
			x.setBit(key, offset, true, false)
		}
		for offset := range uint32(30) {
			x.bit(key, offset, offset == 17 || offset == 3 || offset == 0)
		}
	}},
	{"bit n is in byte n/8 of the value, the highest bit first", func(x *fixture) {
		key := x.key("k")
		x.setBit(key, 0, true, false)
		x.wantForever(key, "\x80")
		x.setBit(key, 7, true, false)
		x.wantForever(key, "\x81")
		x.setBit(key, 18, true, false)
		x.wantForever(key, "\x81\x00\x20")
		x.setBit(key, 0, false, true)
		x.wantForever(key, "\x01\x00\x20")
		x.outside.Set(key, "a", 0) // 0x61
		for offset, on := range []bool{false, true, true, false, false, false, false, true, false} {
			x.bit(key, uint32(offset), on)
		}
	}},
	{"SetBit leaves the expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.put(key, "\x80", x.long)
		x.setBit(key, 0, false, true)
		x.setBit(key, 9, true, false)
		x.wantValue(key, "\x00\x40", l)
	}},
}

// commands are all calls of a LegacyStore for key. Each call that writes would change the value.
func (x *fixture) commands(key string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"SetNXForever": func(ctx context.Context) error { _, err := x.legacy.SetNXForever(ctx, key, "mine"); return err },
		"Get":          func(ctx context.Context) error { _, _, err := x.legacy.Get(ctx, key); return err },
		"GetSet":       func(ctx context.Context) error { _, _, err := x.legacy.GetSet(ctx, key, "other"); return err },
		"Left":         func(ctx context.Context) error { _, _, err := x.legacy.Left(ctx, key); return err },
		"Expire":       func(ctx context.Context) error { _, err := x.legacy.Expire(ctx, key, 2*x.long); return err },
		"Delete":       func(ctx context.Context) error { _, err := x.legacy.Delete(ctx, key); return err },
		"TxExpireIf":   func(ctx context.Context) error { _, err := x.legacy.TxExpireIf(ctx, key, "mine", 2*x.long); return err },
		"TxDeleteIf":   func(ctx context.Context) error { _, err := x.legacy.TxDeleteIf(ctx, key, "mine"); return err },
		"GetBit":       func(ctx context.Context) error { _, err := x.legacy.GetBit(ctx, key, 1); return err },
		"SetBit":       func(ctx context.Context) error { _, err := x.legacy.SetBit(ctx, key, 0, true); return err },
	}
}

var legacyRefusalSentences = []sentence{
	{"commands that need a string return a permanent error that matches ErrWrongType for another type", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		commands := x.commands(key)
		for _, name := range []string{"Get", "GetSet", "TxExpireIf", "TxDeleteIf", "GetBit", "SetBit"} {
			err := commands[name](x.Context())
			if !errors.Is(err, backends.ErrWrongType) {
				x.Fatalf("%s: error %v; want one that matches ErrWrongType", name, err)
			}
			x.wantPermanent(name, err)
			x.wantForever(key, "")
		}
	}},
	{"every command with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		free, held := x.key("free"), x.key("held")
		l := x.put(held, "mine", x.long)
		for name, command := range x.commands(free) {
			x.done(name, command)
			x.wantNothing(free)
		}
		for name, command := range x.commands(held) {
			x.done(name, command)
			x.wantValue(held, "mine", l)
		}
	}},
}

// legacyManySentences are about odd texts, and about concurrent calls.
var legacyManySentences = []sentence{
	{"a value may be any text, and no text has a special meaning", func(x *fixture) {
		key := x.key("k")
		for i, ours := range oddValues {
			x.setForever(key, ours, true)
			x.wantForever(key, ours)
			x.get(key, ours, true)
			for next := 1; next < 6; next++ { // texts that look alike are neighbours
				other := oddValues[(i+next)%len(oddValues)]
				x.txExpireNot(key, other)
				x.txDelete(key, other, false)
			}
			x.wantForever(key, ours)
			x.getSet(key, ours+"~", ours, true)
			x.txExpire(key, ours+"~", x.long)
			x.txDelete(key, ours+"~", true)
		}
	}},
	{"a key may be any text, and keys that differ in any byte are different keys", func(x *fixture) {
		keys := x.oddKeys()
		for i, key := range keys {
			x.setForever(key, fmt.Sprint("value", i), true)
		}
		for i, key := range keys {
			x.get(key, fmt.Sprint("value", i), true)
			x.expire(key, x.long)
			x.getSet(key, "old", fmt.Sprint("value", i), true)
			x.txExpire(key, "old", x.long)
			x.txDelete(key, "old", true)
			x.setBit(key, 3, true, false)
			x.bit(key, 3, true)
			x.deletes(key, true)
			x.wantNothing(key)
		}
	}},
	{"of concurrent SetNXForever calls exactly one is granted", func(x *fixture) {
		x.oneOf(func(_ string) {}, func(key string, i int) (bool, error) {
			return x.legacy.SetNXForever(x.Context(), key, fmt.Sprint("caller", i))
		})
	}},
	{"of concurrent SetBit calls exactly one changes the bit", func(x *fixture) {
		x.oneOf(func(_ string) {}, func(key string, _ int) (bool, error) {
			was, err := x.legacy.SetBit(x.Context(), key, 5, true)
			return !was, err
		})
	}},
	{"concurrent SetBit calls for different bits all take effect", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			together(callers, func(i int) {
				if was, err := x.legacy.SetBit(x.Context(), key, uint32(i), true); err != nil || was {
					x.Errorf("SetBit = %v, %v; want false", was, err)
				}
			})
			for i := range callers {
				x.bit(key, uint32(i), true)
			}
		}
	}},
	{"of concurrent Delete calls exactly one returns true", func(x *fixture) {
		x.oneOf(func(key string) { x.put(key, "theirs", x.long) }, func(key string, _ int) (bool, error) {
			return x.legacy.Delete(x.Context(), key)
		})
	}},
	{"of concurrent TxDeleteIf calls exactly one returns true", func(x *fixture) {
		x.oneOf(func(key string) { x.put(key, "mine", x.long) }, func(key string, _ int) (bool, error) {
			return x.legacy.TxDeleteIf(x.Context(), key, "mine")
		})
	}},
	{"concurrent GetSet calls each return the value that another one has stored", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var mu sync.Mutex
			after := make(map[string]string) // the value that replaced each value; "" is the free key
			together(callers, func(i int) {
				value := fmt.Sprint("caller", i)
				old, found, err := x.legacy.GetSet(x.Context(), key, value)
				if err != nil || found != (old != "") {
					x.Errorf("GetSet = %q, %v, %v", old, found, err)
				}
				mu.Lock()
				defer mu.Unlock()
				after[old] = value
			})
			last, n := "", 0
			for ; n < callers && after[last] != ""; n++ {
				last = after[last]
			}
			if n != callers {
				x.Fatalf("%d of %d values form a chain: %v", n, callers, after)
			}
			x.get(key, last, true)
		}
	}},
	{"TxDeleteIf never removes a value that was stored during the call", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.outside.Set(key, "old", 0)
			together(callers, func(i int) {
				if i == callers/2 {
					if _, _, err := x.legacy.GetSet(x.Context(), key, "new"); err != nil {
						x.Errorf("GetSet: %v", err)
					}
					return
				}
				if _, err := x.legacy.TxDeleteIf(x.Context(), key, "old"); err != nil {
					x.Errorf("TxDeleteIf: %v", err)
				}
			})
			x.get(key, "new", true)
		}
	}},
	{"TxExpireIf succeeds even if other clients change the key during the call", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.put(key, "mine", x.long)
			together(callers, func(i int) {
				var ok bool
				var err error
				if i%2 == 0 {
					ok, err = x.legacy.TxExpireIf(x.Context(), key, "mine", x.long)
				} else {
					ok, err = x.legacy.Expire(x.Context(), key, x.long)
				}
				if err != nil || !ok {
					x.Errorf("TxExpireIf or Expire = %v, %v; want true", ok, err)
				}
			})
		}
	}},
}

// oneOf checks that of concurrent calls after prepare exactly one returns true.
func (x *fixture) oneOf(prepare func(key string), call func(key string, i int) (bool, error)) {
	x.Helper()
	for round := range rounds {
		key := x.key(fmt.Sprint("round", round))
		prepare(key)
		var winners atomic.Int64
		together(callers, func(i int) {
			ok, err := call(key, i)
			if err != nil {
				x.Errorf("caller %d: %v", i, err)
			}
			if ok {
				winners.Add(1)
			}
		})
		if n := winners.Load(); n != 1 {
			x.Fatalf("%d of %d calls returned true; want 1", n, callers)
		}
	}
}

// put stores a value from outside.
func (x *fixture) put(key, value string, ttl time.Duration) life {
	began := time.Now()
	x.outside.Set(key, value, ttl)
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// gone waits until key is free, because its value, with the life l, has expired.
func (x *fixture) gone(key string, l life) {
	x.Helper()
	x.eventually("the value is gone", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
}

// hasExpired leaves key free after the end of the value "expired".
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

// badTTL checks that call fails for a bad ttl, and leaves the value "mine" alone.
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
