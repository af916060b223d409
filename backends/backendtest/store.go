package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/relied"
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
	{"SetNX of a free key is granted, and stores the value for ttl", func(x *fixture) {
		key := x.key("k")
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
	}},
	{"SetNX of a held key is not granted, and Left is the remaining life of its value", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		time.Sleep(5 * x.Resolution) // so that Left is not the ttl
		x.wantHeld(key, "mine", 2*x.long, l)
		x.wantHeld(key, "mine", x.long/2, l)
	}},
	{"SetNX of a held key leaves the value and its expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.wantHeld(key, "mine", 2*x.long, l)
		x.wantValue(key, "theirs", l)
		x.wantHeld(key, "mine", x.long/2, l)
		x.wantValue(key, "theirs", l)
	}},
	{"a second SetNX of the same value is granted, and the value lives for ttl from then on", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		time.Sleep(5 * x.Resolution)
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
		x.wantValue(key, "mine", x.grant(key, "mine", 2*x.long))
	}},
	{"a second SetNX of the same value never shortens its life, not even after an ExpireIf", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 2*x.long)
		x.grant(key, "mine", x.long)
		x.wantValue(key, "mine", l)
		l = x.extend(key, "mine", 3*x.long)
		x.grant(key, "mine", x.long)
		x.wantValue(key, "mine", l)
	}},
	{"a value that has ended is one like any other while another has the key", func(x *fixture) {
		for ttl, end := range map[time.Duration]func(key string, l life){
			x.long:                func(key string, _ life) { x.remove(key, "mine") },
			10 * time.Millisecond: x.endOf,
		} {
			key := x.key(ttl.String())
			end(key, x.grant(key, "mine", ttl))
			l := x.grant(key, "theirs", x.long)
			x.wantHeld(key, "mine", x.long, l)
			x.extendNot(key, "mine", 2*x.long)
			x.removeNot(key, "mine")
			x.wantValue(key, "theirs", l)
		}
	}},
	{"SetNX with a ttl over the limit is a permanent error that names the limit, and stores nothing", func(x *fixture) {
		x.wantBadTTL(x.MaxTTL+time.Millisecond, x.MaxTTL.String())
		x.wantBadTTL(24*x.MaxTTL, x.MaxTTL.String())
	}},
	{"SetNX with a ttl of the limit is granted", func(x *fixture) {
		key := x.key("k")
		x.wantValue(key, "mine", x.grant(key, "mine", x.MaxTTL))
	}},
	{"SetNX and ExpireIf take a ttl over the limit if its caller relies on the limit or less", func(x *fixture) {
		all := x.store
		defer func() { x.store = all }()
		x.store = reliedOn{all, x.MaxTTL}
		key := x.key("k")
		x.wantValue(key, "mine", x.grant(key, "mine", 2*x.MaxTTL))
		x.wantValue(key, "mine", x.extend(key, "mine", 3*x.MaxTTL))
		x.remove(key, "mine")
		x.store = reliedOn{all, x.MaxTTL + time.Millisecond}
		x.wantBadTTL(2*x.MaxTTL, x.MaxTTL.String())
		x.wantBadExtension(2*x.MaxTTL, x.MaxTTL.String())
		x.store = reliedOn{all, 0}
		x.wantBadTTL(max(x.MaxTTL, relied.Longest)+time.Millisecond, x.MaxTTL.String())
	}},
	{"SetNX with a ttl under a millisecond is a permanent error, and stores nothing", func(x *fixture) {
		x.wantBadTTL(time.Millisecond-1, "")
		x.wantBadTTL(1, "")
		x.wantBadTTL(0, "") // some servers take this for no expiry
		x.wantBadTTL(-x.long, "")
	}},
}

// reliedOn is a store under a caller that relies on d of each ttl over it.
type reliedOn struct {
	backends.Store
	d time.Duration
}

func (r reliedOn) ctx(ctx context.Context, ttl time.Duration) context.Context {
	if ttl <= r.d { // the caller relies on all of it
		return ctx
	}
	return relied.With(ctx, r.d)
}

func (r reliedOn) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return r.Store.SetNX(r.ctx(ctx, ttl), key, value, ttl)
}

func (r reliedOn) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return r.Store.ExpireIf(r.ctx(ctx, ttl), key, value, ttl)
}

func (x *fixture) wantBadTTL(ttl time.Duration, named string) {
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
	{"a value never lives shorter than its ttl, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.livesUntil(key, x.grant(key, "mine", ttl))
		}
	}},
	{"a value that was granted twice never lives shorter than its ttl, not even by a fraction of a millisecond", func(x *fixture) {
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
	{"a key is free when its value has expired, and not before", func(x *fixture) {
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

// fractions are ttls that show whether a store that keeps milliseconds rounds down.
var fractions = []time.Duration{15400 * time.Microsecond, 10999 * time.Microsecond, 1900 * time.Microsecond}

// livesUntil checks that the value of key lives until l.earliest. An answer that came later proves
// nothing.
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
	{"ExpireIf makes a value that matches live for ttl from now", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		time.Sleep(5 * x.Resolution)
		x.wantValue(key, "mine", x.extend(key, "mine", x.long))
		x.wantValue(key, "mine", x.extend(key, "mine", 2*x.long))
	}},
	{"ExpireIf never shortens the life of a value", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.extend(key, "mine", x.long/2)
		x.wantValue(key, "mine", l)
		x.extend(key, "mine", time.Millisecond)
		x.wantValue(key, "mine", l)
	}},
	{"a value never lives shorter than the ttl of its ExpireIf, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.grant(key, "mine", time.Millisecond)
			began := time.Now()
			ok, err := x.store.ExpireIf(x.Context(), key, "mine", ttl)
			if err != nil {
				x.Fatalf("ExpireIf: %v", err)
			}
			if ok { // otherwise the machine was slow and the value has ended
				x.livesUntil(key, life{earliest: began.Add(ttl)})
			}
		}
	}},
	{"a value that was extended or granted again keeps others out after the end that it had first", func(x *fixture) {
		for says, again := range map[string]func(key string) (bool, error){
			"extended": func(key string) (bool, error) { return x.store.ExpireIf(x.Context(), key, "mine", x.long) },
			"granted": func(key string) (bool, error) {
				res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
				return res.OK, err
			},
		} {
			key := x.key(says)
			l := x.prolonged(func(ttl time.Duration) life { return x.grant(key, "mine", ttl) }, func() (bool, error) { return again(key) })
			x.wantHeld(key, "theirs", x.long, l)
			x.wantValue(key, "mine", l)
		}
	}},
	{"ExpireIf of another value returns false and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.extendNot(key, "mine", 2*x.long)
		x.wantValue(key, "theirs", l)
		x.extendNot(key, "mine", x.long/2)
		x.wantValue(key, "theirs", l)
	}},
	{"ExpireIf of an absent key returns false and creates nothing", func(x *fixture) {
		key := x.key("k")
		x.extendNot(key, "mine", x.long)
		x.wantNothing(key)
	}},
	{"ExpireIf of an expired value returns false and does not bring it back", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 10*time.Millisecond)
		x.eventually("the value is gone", l, func() bool {
			_, _, ok := x.outside.Get(key)
			return !ok
		})
		x.extendNot(key, "mine", x.long)
		x.wantNothing(key)
	}},
	{"ExpireIf with a ttl over the limit is a permanent error that names the limit, and the expiry stays", func(x *fixture) {
		x.wantBadExtension(x.MaxTTL+time.Millisecond, x.MaxTTL.String())
	}},
	{"ExpireIf with a ttl under a millisecond is a permanent error, and the expiry stays", func(x *fixture) {
		x.wantBadExtension(time.Millisecond-1, "")
		x.wantBadExtension(0, "")
		x.wantBadExtension(-x.long, "") // some servers take this for a deletion
	}},
}

func (x *fixture) wantBadExtension(ttl time.Duration, named string) {
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

// prolonged begins a life that is short, makes it long before its end, and waits until the first one is over.
func (x *fixture) prolonged(begin func(ttl time.Duration) life, again func() (bool, error)) life {
	x.Helper()
	for ttl := 10 * time.Millisecond; ttl < x.long; ttl *= 4 {
		first, began := begin(ttl), time.Now()
		switch ok, err := again(); {
		case err != nil:
			x.Fatalf("a life that goes on is not made longer: %v", err)
		case ok:
			l := life{began.Add(x.long), time.Now().Add(x.long)}
			time.Sleep(time.Until(first.latest.Add(x.tolerance())))
			return l
		}
	}
	x.Fatalf("each life ended before it could be made longer")
	return life{}
}

var deleteIfSentences = []sentence{
	{"DeleteIf removes a value that matches, and the key is free", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.remove(key, "mine")
		x.wantNothing(key)
		x.wantValue(key, "theirs", x.grant(key, "theirs", x.long))
	}},
	{"DeleteIf of another value returns false and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "theirs", x.long)
		x.removeNot(key, "mine")
		x.wantValue(key, "theirs", l)
		l = x.extend(key, "theirs", 2*x.long)
		x.removeNot(key, "mine")
		x.wantValue(key, "theirs", l)
	}},
	{"DeleteIf of an absent key returns false", func(x *fixture) {
		key := x.key("k")
		x.removeNot(key, "mine")
		x.wantNothing(key)
	}},
	{"DeleteIf of an expired value returns false", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", 10*time.Millisecond)
		x.eventually("the value is gone", l, func() bool {
			_, _, ok := x.outside.Get(key)
			return !ok
		})
		x.removeNot(key, "mine")
	}},
	{"a second DeleteIf returns false", func(x *fixture) {
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
	{"SetNX with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
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
	{"ExpireIf with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("ExpireIf", func(ctx context.Context) error {
			_, err := x.store.ExpireIf(ctx, key, "mine", 2*x.long)
			return err
		})
		x.wantValue(key, "mine", l)
	}},
	{"DeleteIf with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("DeleteIf", func(ctx context.Context) error {
			_, err := x.store.DeleteIf(ctx, key, "mine")
			return err
		})
		x.wantValue(key, "mine", l)
	}},
}

// done makes a call with a ctx that was cancelled, and one with a ctx whose deadline has passed.
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
	{"of concurrent SetNX calls with different values exactly one is granted", func(x *fixture) {
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
	{"concurrent SetNX calls with the same value are all granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			together(callers, func(int) {
				if res, err := x.store.SetNX(x.Context(), key, "mine", x.long); err != nil || !res.OK {
					x.Errorf("SetNX = %+v, %v; want it granted", res, err)
				}
			})
		}
	}},
	{"of concurrent DeleteIf calls with the same value exactly one returns true", func(x *fixture) {
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
	{"DeleteIf never removes another value that was stored during the call", func(x *fixture) {
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
				x.Fatalf("%d callers were granted the key; held: %v", n, held)
			}
		}
	}},
	{"ExpireIf and a second SetNX never bring back a value that was removed during the call, nor overwrite the next", func(x *fixture) {
		for round := range 2 {
			key := x.key(fmt.Sprint("round", round))
			x.grant(key, "old", x.long)
			var winners atomic.Int64
			var winner atomic.Value
			together(callers, func(i int) {
				var res backends.Result
				var err error
				switch i % 4 {
				case 0:
					_, err = x.store.ExpireIf(x.Context(), key, "old", x.long)
				case 1:
					_, err = x.store.SetNX(x.Context(), key, "old", x.long)
				case 2:
					_, err = x.store.DeleteIf(x.Context(), key, "old")
				case 3:
					value := fmt.Sprint("new", i)
					if res, err = x.store.SetNX(x.Context(), key, value, x.long); res.OK {
						winners.Add(1)
						winner.Store(value)
					}
				}
				if err != nil {
					x.Errorf("%v", err)
				}
			})
			got, _, held := x.outside.Get(key)
			switch n := winners.Load(); {
			case n > 1, n == 1 && got != winner.Load():
				x.Fatalf("%d callers were granted the key, the last was %v; it holds %q", n, winner.Load(), got)
			case n == 0 && held && got != "old":
				x.Fatalf("no other caller was granted the key; it holds %q", got)
			}
		}
	}},
}

var foreignSentences = []sentence{
	{"a value without expiry is Foreign, without Left, and stays", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
		if want := (backends.Result{Foreign: true}); err != nil || res != want {
			x.Fatalf("SetNX = %+v, %v; want %+v", res, err, want)
		}
		x.wantForever(key, "theirs")
	}},
	{"ExpireIf and DeleteIf of another value leave a value without expiry alone", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		x.extendNot(key, "mine", x.long)
		x.wantForever(key, "theirs")
		x.removeNot(key, "mine")
		x.wantForever(key, "theirs")
	}},
	{"ExpireIf of a value without expiry returns true and sets no expiry, which would shorten its life", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.extend(key, "mine", x.long)
		x.wantForever(key, "mine")
	}},
	{"SetNX of the same value without expiry is granted and sets the ttl", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
	}},
	{"DeleteIf removes a value without expiry that matches", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "mine", 0)
		x.remove(key, "mine")
		x.wantNothing(key)
	}},
	{"a value that other software stored with an expiry counts like our own", func(x *fixture) {
		key := x.key("k")
		began := time.Now()
		x.outside.Set(key, "theirs", x.long)
		l := life{began.Add(x.long), time.Now().Add(x.long)}
		x.wantHeld(key, "mine", x.long, l)
		x.wantValue(key, "theirs", l)
		x.remove(key, "theirs")
	}},
	{"a value of another type is a permanent error that matches ErrWrongType, and stays", func(x *fixture) {
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

// byteSentences say that keys and values are bytes: they are compared as a whole, and no text in
// them has a special meaning.
var byteSentences = []sentence{
	{"values match only if all their bytes are equal", func(x *fixture) {
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
	{"a value may be any text, and no text has a special meaning", func(x *fixture) {
		for i, ours := range oddValues {
			key := x.key(fmt.Sprint("k", i))
			l := x.grant(key, ours, x.long)
			x.wantValue(key, ours, l)
			for j, other := range oddValues {
				if j != i && (!testing.Short() || mayMatch(i, j)) {
					x.notOurs(key, other, l)
				}
			}
			x.wantValue(key, ours, x.grant(key, ours, x.long))
			x.wantValue(key, ours, x.extend(key, ours, 2*x.long))
			x.remove(key, ours)
		}
	}},
	{"a key may be any text, and SetNX, ExpireIf and DeleteIf treat it like any other key", func(x *fixture) {
		for _, key := range x.oddKeys() {
			l := x.grant(key, "mine", x.long)
			x.wantValue(key, "mine", l)
			x.wantHeld(key, "theirs", x.long, l)
			x.wantValue(key, "mine", x.extend(key, "mine", 2*x.long))
			x.remove(key, "mine")
			x.wantNothing(key)
		}
	}},
	{"keys that differ in any byte are different keys", func(x *fixture) {
		keys := x.oddKeys()
		lives := make([]life, len(keys))
		for i, key := range keys {
			lives[i] = x.grant(key, fmt.Sprint("value", i), x.long)
		}
		for i, key := range keys {
			x.wantValue(key, fmt.Sprint("value", i), lives[i])
		}
		for i, key := range keys {
			x.remove(key, fmt.Sprint("value", i)) // and no key that comes later
		}
	}},
}

func (x *fixture) notOurs(key, value string, l life) {
	x.Helper()
	x.wantHeld(key, value, x.long, l)
	x.extendNot(key, value, 2*x.long)
	x.removeNot(key, value)
}

// oddValues include patterns that match other values here, and texts of the same number.
var oddValues = []string{
	"token", "tok*", "t?ken", "[a-z]oken", "t.ken", ".*", "*", "%w+", "^token$",
	"1000", "1e3", "1000.0", "0", "00", "nil", "false",
	"two words", "two  words", "line\nbreak", "line\r\nbreak", "tab\t", "naïve ☃", "naive ☃", "🔒",
	"{}", `{"a":1}`, `\`, `\\`, `'`, `"`, "%s", "$1", "--", "]]",
	strings.Repeat("v", 1023) + "x", strings.Repeat("v", 1023) + "y",
}

// mayMatch tells whether -short compares two of oddValues, a third of all pairs: those of texts that look
// alike, which are neighbours, all with the plain text, and all with the patterns that match every text.
func mayMatch(i, j int) bool {
	apart := (i - j + len(oddValues)) % len(oddValues)
	return apart <= 4 || apart >= len(oddValues)-4 || i == 0 || j == 0 || oddValues[j] == "*" || oddValues[j] == ".*"
}

// oddKeys are all different, some only in a byte that a store might ignore.
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
