package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofStore = suite[backends.Store, Outside]{
	sentences: func(h Harness) []sentence {
		return slices.Concat(
			setNXSentences,
			expirySentences,
			expireIfSentences,
			deleteIfSentences,
			contextSentences,
			concurrencySentences,
			watching(h.NoWatch),
			foreignSentences,
			byteSentences,
		)
	},
	give: func(x *fixture, store backends.Store, _ Outside) { x.store = store },
}

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

var deleteIfSentences = []sentence{
	{"DeleteIf removes its own value, and the key is free", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.remove(key, "mine")
		x.wantNothing(key)
		x.wantValue(key, "theirs", x.grant(key, "theirs", x.long))
	}},
	{"DeleteIf on another value says false and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.removeNot(key, "mine")
		x.wantValue(key, "theirs", l)
	}},
	{"DeleteIf on an absent key says false", func(x *fixture) {
		key := x.key("k")
		x.removeNot(key, "mine")
		x.wantNothing(key)
	}},
	{"DeleteIf on an expired value says false", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 10*time.Millisecond)
		x.eventually("the value is gone", l, func() bool {
			_, _, ok := x.outside.Get(key)
			return !ok
		})
		x.removeNot(key, "mine")
	}},
	{"a second DeleteIf says false", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.remove(key, "mine")
		x.removeNot(key, "mine")
	}},
	{"a late DeleteIf leaves the next holder's value alone", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.remove(key, "mine")
		l := x.grant(key, "theirs", x.long)
		x.removeNot(key, "mine")
		x.wantValue(key, "theirs", l)
	}},
}

var contextSentences = []sentence{
	{"SetNX with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		free, held := x.key("free"), x.key("held")
		l := x.grant(held, "mine", x.long)
		x.done("SetNX", func(ctx context.Context) error {
			_, err := x.store.SetNX(ctx, free, "mine", x.long)
			return err
		})
		x.wantNothing(free)
		x.done("SetNX", func(ctx context.Context) error {
			_, err := x.store.SetNX(ctx, held, "mine", 2*x.long)
			return err
		})
		x.wantValue(held, "mine", l)
	}},
	{"ExpireIf with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("ExpireIf", func(ctx context.Context) error {
			_, err := x.store.ExpireIf(ctx, key, "mine", 2*x.long)
			return err
		})
		x.wantValue(key, "mine", l)
	}},
	{"DeleteIf with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("DeleteIf", func(ctx context.Context) error {
			_, err := x.store.DeleteIf(ctx, key, "mine")
			return err
		})
		x.wantValue(key, "mine", l)
	}},
}

// done calls with a ctx that has been cancelled, and with one whose deadline has passed.
func (x *fixture) done(name string, call func(context.Context) error) {
	x.Helper()
	cancelled, cancel := context.WithCancel(x.Context())
	cancel()
	if err := call(cancelled); !errors.Is(err, context.Canceled) {
		x.Errorf("%s with a cancelled ctx: error %v; want context.Canceled", name, err)
	}
	late, cancel := context.WithDeadline(x.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := call(late); !errors.Is(err, context.DeadlineExceeded) {
		x.Errorf("%s after the deadline of its ctx: error %v; want context.DeadlineExceeded", name, err)
	}
}

const (
	callers = 32
	rounds  = 5
)

var concurrencySentences = []sentence{
	{"of many concurrent SetNX with different values exactly one is granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var winners atomic.Int64
			var winner atomic.Value
			together(callers, func(i int) {
				mine := fmt.Sprint("caller", i)
				res, err := x.store.SetNX(x.Context(), key, mine, x.long)
				if err != nil {
					x.Errorf("SetNX: %v", err)
				}
				if res.OK {
					winners.Add(1)
					winner.Store(mine)
				}
			})
			if n := winners.Load(); n != 1 {
				x.Fatalf("%d of %d callers were granted the key", n, callers)
			}
			if got, _, _ := x.outside.Get(key); got != winner.Load() {
				x.Fatalf("the key holds %q; %q was granted", got, winner.Load())
			}
		}
	}},
	{"concurrent SetNX with the same value are all granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			together(callers, func(int) {
				if res, err := x.store.SetNX(x.Context(), key, "mine", x.long); err != nil || !res.OK {
					x.Errorf("SetNX = %+v, %v; want it granted", res, err)
				}
			})
		}
	}},
	{"of many concurrent DeleteIf with the same value exactly one says true", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.grant(key, "mine", x.long)
			var deleted atomic.Int64
			together(callers, func(int) {
				ok, err := x.store.DeleteIf(x.Context(), key, "mine")
				if err != nil {
					x.Errorf("DeleteIf: %v", err)
				}
				if ok {
					deleted.Add(1)
				}
			})
			if n := deleted.Load(); n != 1 {
				x.Fatalf("%d of %d callers deleted the value", n, callers)
			}
		}
	}},
	{"a DeleteIf never removes the value of a SetNX that came between", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.grant(key, "old", x.long)
			var winners atomic.Int64
			together(callers, func(i int) {
				if i%2 == 0 {
					if _, err := x.store.DeleteIf(x.Context(), key, "old"); err != nil {
						x.Errorf("DeleteIf: %v", err)
					}
					return
				}
				res, err := x.store.SetNX(x.Context(), key, fmt.Sprint("new", i), x.long)
				if err != nil {
					x.Errorf("SetNX: %v", err)
				}
				if res.OK {
					winners.Add(1)
				}
			})
			_, _, held := x.outside.Get(key)
			if n := winners.Load(); n > 1 || held != (n == 1) {
				x.Fatalf("%d callers were granted the key, which is held: %v", n, held)
			}
		}
	}},
}

var foreignSentences = []sentence{
	{"a value without expiry is refused as foreign, with no Left, and stays", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
		if want := (backends.Result{Foreign: true}); err != nil || res != want {
			x.Fatalf("SetNX = %+v, %v; want %+v", res, err, want)
		}
		x.wantForever(key, "theirs")
	}},
	{"ExpireIf and DeleteIf with another value leave a value without expiry alone", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		x.extendNot(key, "mine", x.long)
		x.wantForever(key, "theirs")
		x.removeNot(key, "mine")
		x.wantForever(key, "theirs")
	}},
	{"ExpireIf with its own value without expiry says true and gives it none, since that would be shorter", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.extend(key, "mine", x.long)
		x.wantForever(key, "mine")
	}},
	{"SetNX of the same value as one without expiry is granted and gives it the ttl", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
	}},
	{"DeleteIf removes its own value without expiry", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.remove(key, "mine")
		x.wantNothing(key)
	}},
	{"a value that other software stored with an expiry is refused like our own", func(x *fixture) {
		key := x.key("k")
		began := time.Now()
		x.outside.Set(key, "theirs", x.long)
		l := life{began.Add(x.long), time.Now().Add(x.long)}
		x.refuse(key, "mine", x.long, l)
		x.wantValue(key, "theirs", l)
		x.remove(key, "theirs")
	}},
	{"a value of another type is an error that matches ErrWrongType, and stays", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		check := func(call string, ok bool, err error) {
			if ok || !errors.Is(err, backends.ErrWrongType) {
				x.Fatalf("%s = %v, %v; want an error that matches ErrWrongType", call, ok, err)
			}
			x.wantPermanent(call, err)
			x.wantForever(key, "")
		}
		res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
		check("SetNX", res.OK, err)
		for _, value := range []string{"mine", ""} {
			ok, err := x.store.ExpireIf(x.Context(), key, value, x.long)
			check("ExpireIf", ok, err)
			ok, err = x.store.DeleteIf(x.Context(), key, value)
			check("DeleteIf", ok, err)
		}
	}},
}

// byteSentences say that keys and values are bytes: compared as a whole, and nothing in them means anything.
var byteSentences = []sentence{
	{"a value is ours only as a whole, not by its beginning, its end or its letters", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "token-42", x.long)
		for _, near := range []string{
			"token-4", "token", "oken-42", "token-421", "xtoken-42", "TOKEN-42",
			" token-42", "token-42 ", "token-42\n", "",
		} {
			x.notOurs(key, near, l)
		}
		x.wantValue(key, "token-42", l)
		x.remove(key, "token-42")
	}},
	{"a value may hold any text, and no text in it means anything", func(x *fixture) {
		for i, ours := range oddValues {
			key := x.key(fmt.Sprint("k", i))
			l := x.grant(key, ours, x.long)
			x.wantValue(key, ours, l)
			for _, other := range oddValues {
				if other != ours {
					x.notOurs(key, other, l)
				}
			}
			x.wantValue(key, ours, x.grant(key, ours, x.long))
			x.wantValue(key, ours, x.extend(key, ours, 2*x.long))
			x.remove(key, ours)
		}
	}},
	{"a key may hold any text: it is granted, refused, extended and deleted like any other", func(x *fixture) {
		for _, key := range x.oddKeys() {
			l := x.grant(key, "mine", x.long)
			x.wantValue(key, "mine", l)
			x.refuse(key, "theirs", x.long, l)
			x.wantValue(key, "mine", x.extend(key, "mine", 2*x.long))
			x.remove(key, "mine")
			x.wantNothing(key)
		}
	}},
	{"no two keys are the same key", func(x *fixture) {
		keys := x.oddKeys()
		lives := make([]life, len(keys))
		for i, key := range keys {
			lives[i] = x.grant(key, fmt.Sprint("value", i), x.long)
		}
		for i, key := range keys {
			x.wantValue(key, fmt.Sprint("value", i), lives[i])
		}
		for i, key := range keys {
			x.remove(key, fmt.Sprint("value", i)) // and none of those still to come
		}
	}},
}

func (x *fixture) notOurs(key, value string, l life) {
	x.Helper()
	x.refuse(key, value, x.long, l)
	x.extendNot(key, value, 2*x.long)
	x.removeNot(key, value)
}

// oddValues include patterns that match others among them, and texts that are the same number.
var oddValues = []string{
	"token", "tok*", "t?ken", "[a-z]oken", "t.ken", ".*", "*", "%w+", "^token$",
	"1000", "1e3", "1000.0", "0", "00", "nil", "false",
	"two words", "two  words", "line\nbreak", "line\r\nbreak", "tab\t", "naïve ☃", "naive ☃", "🔒",
	"{}", `{"a":1}`, `\`, `\\`, `'`, `"`, "%s", "$1", "--", "]]",
	strings.Repeat("v", 1023) + "x", strings.Repeat("v", 1023) + "y",
}

// oddKeys are all different, some of them only in a place where a store might not look.
func (x *fixture) oddKeys() []string {
	keys := []string{x.key("")}
	for _, name := range []string{
		"k", "K", " ", "two words", "\n", "\r\n", "\t",
		"{", "}", "{}", "}{", "{a}", "{a}b", "a}b", "{{a}}", "{}a", // hash tags, in Redis Cluster
		"*", "?", "@", "[a-z]", ".", "/", ":", "%", "%s", "#", `\`, "'", `"`, "$", "ключ", "鍵", "🔒", "é", "e\u0301",
	} {
		keys = append(keys, x.key(name))
	}
	const longest = 512
	for _, end := range []string{"x", "y"} {
		keys = append(keys, x.own(x.id+strings.Repeat("k", longest-len(x.id)-len(end))+end))
	}
	return keys
}
