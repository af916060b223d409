package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// evictSentences are about a store that is a [backends.Evictor].
var evictSentences = onlyIf(func(x *fixture) bool { return x.evictor != nil }, []sentence{
	{"each hold has a print, which stays the same and does nothing without Evict", func(x *fixture) {
		one, two, token := x.key("one"), x.key("two"), labelled("ann")
		l := x.grant(one, token, x.long)
		x.grant(two, labelled("ann"), x.long)
		seen := x.print(one)
		if other := x.print(two); seen == "" || seen == other || strings.Contains(token, seen) {
			x.Errorf("the prints are %q and %q", seen, other)
		}
		x.removeNot(one, seen)
		x.extendNot(one, seen, x.long)
		x.wantHeld(one, seen, x.long, l)
		x.extend(one, token, 2*x.long)
		if again := x.print(one); again != seen {
			x.Errorf("after a renewal the print is %q; want %q", again, seen)
		}
	}},
	{"an evicted hold is over for its holder, and keeps others out as long as it would have lived", func(x *fixture) {
		for _, by := range []string{"ann's host", ""} {
			key, token := x.key("k"+by), labelled("bob")
			l := x.grant(key, token, x.long)
			x.evict(key, x.print(key), backends.Eviction{By: by}, true)
			x.extendNot(key, token, 2*x.long)
			x.removeNot(key, token)
			if x.transfers != nil {
				x.transferNot(key, token, labelled(""))
			}
			x.wantHeld(key, token, x.long, l) // the token too: an attempt that comes late
			x.wantHeld(key, labelled(""), x.long, l)
			if x.numbers != nil {
				if res, err := x.numbers.SetNXNumbered(x.Context(), key, labelled(""), x.long, backends.Turn{}); err != nil || res.OK {
					x.Errorf("SetNXNumbered = %+v, %v", res, err)
				}
			}
			x.wantEvicted(key, by, l)
		}
	}},
	{"an eviction is known to the holder that it ended and to no other, and callers are told its label", func(x *fixture) {
		for _, by := range []string{"ann's host", ""} {
			key, token, other := x.key("k"+by), labelled("bob"), labelled("bob")
			x.grant(key, token, x.long)
			if h := x.inspect(key).Holds[0]; h.Replaces(token) {
				x.Errorf("%+v is told as evicted", h)
			}
			x.evict(key, x.print(key), backends.Eviction{By: by}, true)
			if h := x.inspect(key).Holds[0]; !h.Replaces(token) || h.Replaces(other) {
				x.Errorf("%+v replaces its holder: %v, another one: %v", h, h.Replaces(token), h.Replaces(other))
			}
			res, err := x.store.SetNX(x.Context(), key, other, x.long)
			x.wantInTheWay(res, err, by)
			if x.shared == nil {
				continue
			}
			key = x.key("shared" + by)
			x.admit(key, token, x.long, backends.Admission{Limit: 1}, 1, 0)
			x.evict(key, x.print(key), backends.Eviction{By: by}, true)
			if h := x.inspect(key).Holds[0]; !h.Replaces(token) || h.Replaces(other) {
				x.Errorf("%+v replaces its holder: %v, another one: %v", h, h.Replaces(token), h.Replaces(other))
			}
			res, err = x.shared.Enter(x.Context(), key, other, x.long, backends.Admission{Limit: 1})
			x.wantInTheWay(res, err, by)
		}
	}},
	{"an evicted key opens when the hold would have ended, and not before", func(x *fixture) {
		x.inTime("Evict", func(key string) bool {
			l := x.grant(key, labelled(""), x.closing())
			if !x.evictIfThere(key) {
				return x.ended(l)
			}
			x.opens(l, func() bool {
				res, err := x.store.SetNX(x.Context(), key, labelled(""), x.long)
				return err == nil && res.OK
			})
			return true
		})
	}},
	{"a hold that was renewed since it was seen is evicted, and keeps others out until its new end", func(x *fixture) {
		key, token := x.key("k"), labelled("")
		x.grant(key, token, x.long)
		seen := x.print(key)
		l := x.extend(key, token, 2*x.long)
		x.evict(key, seen, backends.Eviction{}, true)
		x.wantHeld(key, labelled(""), x.long, l)
	}},
	{"Evict leaves a hold alone that has another print", func(x *fixture) {
		for i, e := range []backends.Eviction{{}, {Now: true}, {Now: true, Foreign: true}} {
			key, token := x.key(fmt.Sprint("k", i)), labelled("")
			x.grant(key, token, x.long)
			seen := x.print(key)
			x.remove(key, token)
			x.evict(key, seen, e, false)
			x.wantNothing(key)
			token = labelled("")
			l := x.grant(key, token, x.long)
			x.evict(key, seen, e, false)
			x.evict(key, "not a print", e, false)
			x.wantValue(key, token, l)
			if x.shared != nil {
				key, token := x.key(fmt.Sprint("shared", i)), labelled("")
				x.admit(key, token, x.long, backends.Admission{}, 1, -1)
				x.evict(key, seen, e, false)
				x.renew(key, token, x.long)
			}
		}
	}},
	{"with Now an evicted key is free at once, and its watchers are woken", func(x *fixture) {
		key, token := x.key("k"), labelled("")
		x.grant(key, token, x.long)
		var w *wakes
		if !x.NoWatch {
			w = x.watch(x.Context(), key)
		}
		x.evict(key, x.print(key), backends.Eviction{Now: true}, true)
		if w != nil {
			x.wantWake(w)
		}
		x.wantNothing(key)
		x.extendNot(key, token, x.long)
		x.grant(key, labelled(""), x.long)
	}},
	{"with Now an evicted key goes to the head of its queue, and otherwise its waiters keep waiting", func(x *fixture) {
		if x.queued == nil {
			return
		}
		key := x.key("k")
		x.grant(key, labelled(""), x.long)
		x.waitFor(key, "ann")
		x.evict(key, x.print(key), backends.Eviction{}, true)
		if s := x.inspect(key); s.Reserved != 0 || s.Waiting != 1 {
			x.Errorf("State = %+v; want ann waiting", s)
		}
		x.inTime("Evict", func(key string) bool {
			x.grant(key, labelled(""), x.long)
			x.waitFor(key, "ann")
			seen, began := x.print(key), time.Now()
			x.evict(key, seen, backends.Eviction{Now: true}, true)
			s := x.inspect(key)
			if !x.lasts(life{earliest: began.Add(backends.Reservation)}) {
				return false
			}
			if s.Reserved != 1 || s.Waiting != 0 || s.Holding != 0 {
				x.Errorf("State = %+v; want a reservation for ann", s)
			}
			return true
		})
	}},
	{"an evicted key has a print of its own, by which Evict opens it", func(x *fixture) {
		key := x.key("k")
		x.grant(key, labelled(""), x.long)
		before := x.print(key)
		x.evict(key, before, backends.Eviction{}, true)
		seen := x.print(key)
		x.evict(key, before, backends.Eviction{Now: true}, false)
		x.evict(key, seen, backends.Eviction{Now: true}, true)
		x.wantNothing(key)
	}},
	{"numbers rise after an eviction", func(x *fixture) {
		if x.numbers == nil {
			return
		}
		key, last := x.key("k"), uint64(0)
		for range 3 {
			res, err := x.numbers.SetNXNumbered(x.Context(), key, labelled(""), x.long, backends.Turn{})
			if err != nil || !res.OK || res.Fence <= last {
				x.Fatalf("SetNXNumbered = %+v, %v; want a number over %d", res, err, last)
			}
			last = res.Fence
			x.evict(key, x.print(key), backends.Eviction{}, true)
			x.evict(key, x.print(key), backends.Eviction{Now: true}, true)
		}
	}},
	{"a value that is no token is Foreign, and is evicted only with Foreign", func(x *fixture) {
		for i, value := range []string{"a cache entry", "GETTHEWORDSTOGETHERALLRIGHT2X", strings.ToLower(labelled("")), ""} {
			key := x.key(fmt.Sprint("k", i))
			x.outside.Set(key, value, x.long)
			s := x.inspect(key)
			if len(s.Holds) != 1 || !s.Holds[0].Foreign || s.Holds[0].Evicted {
				x.Fatalf("State of %q = %+v; want one hold, which is Foreign", value, s)
			}
			for _, now := range []bool{false, true} {
				x.wantForeign(key, s.Holds[0].Print, backends.Eviction{Now: now})
			}
			if got, _, ok := x.outside.Get(key); !ok || got != value {
				x.Errorf("the key has %q, %v; want %q", got, ok, value)
			}
			x.evict(key, s.Holds[0].Print, backends.Eviction{Foreign: true}, true)
			if s := x.inspect(key); len(s.Holds) != 1 || !s.Holds[0].Evicted || s.Holds[0].Foreign {
				x.Errorf("State = %+v; want it evicted", s)
			}
		}
		key := x.key("ours")
		x.grant(key, labelled("ann"), x.long)
		if s := x.inspect(key); s.Holds[0].Foreign {
			x.Errorf("State of a token = %+v", s)
		}
	}},
	{"a text without expiry has a print, and is removed only with Foreign and Now", func(x *fixture) {
		for i, value := range []string{"by an operator", labelled("ann")} {
			key := x.key(fmt.Sprint("k", i))
			x.outside.Set(key, value, 0)
			seen := x.inspect(key).Print
			for _, e := range []backends.Eviction{{}, {Now: true}, {Foreign: true}} {
				x.wantForeign(key, seen, e)
			}
			x.wantForever(key, value)
			x.evict(key, seen, backends.Eviction{Now: true, Foreign: true}, true)
			x.wantNothing(key)
		}
	}},
	{"Evict of a value of another type is an error that matches ErrWrongType", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		ok, err := x.evictor.Evict(x.Context(), key, "0011223344556677", backends.Eviction{Now: true, Foreign: true})
		if ok || !errors.Is(err, backends.ErrWrongType) {
			x.Errorf("Evict = %v, %v", ok, err)
		}
		x.wantPermanent("Evict", err)
	}},
	{"an evicted shared hold keeps its room, and leaves the other holds alone", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, a := x.key("k"), slotted(2)
		a.Group = "g"
		ann, bob := labelled("ann"), labelled("bob")
		l := x.admit(key, ann, x.long, a, 1, 1)
		x.admit(key, bob, 2*x.long, a, 2, 0)
		s := x.inspect(key)
		x.evict(key, s.Holds[0].Print, backends.Eviction{By: "col"}, true)
		x.renewNot(key, ann, x.long)
		x.leaveNot(key, ann)
		x.admitNot(key, ann, a, 2) // an attempt that comes late
		x.admitNot(key, labelled(""), a, 2)
		x.renew(key, bob, 2*x.long)
		began := time.Now()
		s = x.inspect(key)
		if len(s.Holds) != 2 || s.Holding != 2 || s.Group != "g" {
			x.Fatalf("State = %+v; want two holds", s)
		}
		if h := s.Holds[0]; !h.Evicted || h.Holder != "col" || h.Slot != 0 || h.Foreign {
			x.Errorf("the hold of ann is %+v; want it evicted by col", h)
		}
		if h := s.Holds[1]; h.Evicted || h.Holder != "bob" || h.Slot != 1 {
			x.Errorf("the hold of bob is %+v", h)
		}
		x.within(l, "the evicted hold", s.Holds[0].Left, began, time.Now())
		x.evict(key, s.Holds[0].Print, backends.Eviction{Now: true}, true)
		next := labelled("")
		x.slot(key, next, a, 0)
		x.evict(key, s.Holds[1].Print, backends.Eviction{}, true)
		x.renewNot(key, bob, x.long)
		x.renew(key, next, x.long)
	}},
	{"the room of an evicted shared hold opens when the hold would have ended, and not before", func(x *fixture) {
		if x.shared == nil {
			return
		}
		x.inTime("Evict", func(key string) bool {
			l := x.admit(key, labelled(""), x.closing(), backends.Admission{Limit: 1}, 1, 0)
			if !x.evictIfThere(key) {
				return x.ended(l)
			}
			x.opens(l, func() bool {
				res, err := x.shared.Enter(x.Context(), key, labelled(""), x.long, backends.Admission{Limit: 1})
				return err == nil && res.OK
			})
			return true
		})
	}},
	{"with Now the room of an evicted shared hold goes to the waiters that fit", func(x *fixture) {
		if _, ok := x.shared.(backends.OrderedStore); !ok {
			return
		}
		x.inTime("Evict", func(key string) bool {
			x.admit(key, labelled(""), x.long, writes, 0, 0)
			x.waiters(key, reads, reads, writes)
			seen, began := x.print(key), time.Now()
			x.evict(key, seen, backends.Eviction{Now: true}, true)
			s := x.inspect(key)
			if !x.lasts(life{earliest: began.Add(backends.Reservation)}) {
				return false
			}
			if s.Holding != 0 || s.Reserved != 2 || s.Waiting != 1 {
				x.Errorf("State = %+v; want the reservations of two readers, and a writer waiting", s)
			}
			return true
		})
	}},
	{"a shared hold that is no token is Foreign, and is evicted only with Foreign", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.admit(key, "no token", x.long, backends.Admission{}, 1, -1)
		s := x.inspect(key)
		if len(s.Holds) != 1 || !s.Holds[0].Foreign {
			x.Fatalf("State = %+v; want one hold, which is Foreign", s)
		}
		x.wantForeign(key, s.Holds[0].Print, backends.Eviction{})
		x.renew(key, "no token", x.long)
		x.evict(key, s.Holds[0].Print, backends.Eviction{Foreign: true}, true)
		x.renewNot(key, "no token", x.long)
	}},
	{"Evict leaves a value of the type of holds without expiry alone", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.setShared(key)
		for _, e := range []backends.Eviction{{}, {Now: true}, {Now: true, Foreign: true}} {
			x.wantForeign(key, "0011223344556677", e)
			x.wantForever(key, "")
		}
	}},
	{"Evict without a print, or with a label that is none, is a permanent error", func(x *fixture) {
		key, token := x.key("k"), labelled("")
		l := x.grant(key, token, x.long)
		_, err := x.evictor.Evict(x.Context(), key, "", backends.Eviction{})
		x.wantPermanent("Evict without a print", err)
		for _, by := range []string{"ann@host", "a\nb", strings.Repeat("x", 101), "lockstep:x"} {
			_, err := x.evictor.Evict(x.Context(), key, x.print(key), backends.Eviction{By: by})
			x.wantPermanent(fmt.Sprintf("Evict by %q", by), err)
		}
		x.wantValue(key, token, l)
		x.evict(key, x.print(key), backends.Eviction{By: strings.Repeat("x", 100)}, true)
		x.wantEvicted(key, strings.Repeat("x", 100), l)
	}},
	{"Evict with a ctx that is done changes nothing, and is the error of the ctx", func(x *fixture) {
		key, token := x.key("k"), labelled("")
		l := x.grant(key, token, x.long)
		seen := x.print(key)
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		if ok, err := x.evictor.Evict(ctx, key, seen, backends.Eviction{}); !errors.Is(err, context.Canceled) {
			x.Errorf("Evict = %v, %v", ok, err)
		}
		x.wantValue(key, token, l)
	}},
})

// print is the Print of the only hold of key.
func (x *fixture) print(key string) string {
	x.Helper()
	s := x.inspect(key)
	if len(s.Holds) != 1 {
		x.Fatalf("State of %.60q = %+v; want one hold", key, s)
	}
	return s.Holds[0].Print
}

// evict calls Evict, which must answer want.
func (x *fixture) evict(key, seen string, e backends.Eviction, want bool) {
	x.Helper()
	if ok, err := x.evictor.Evict(x.Context(), key, seen, e); err != nil || ok != want {
		x.Fatalf("Evict(%.60q, %q, %+v) = %v, %v; want %v", key, seen, e, ok, err, want)
	}
}

// evictIfThere evicts the only hold of key, and returns false if there is none any more.
func (x *fixture) evictIfThere(key string) bool {
	x.Helper()
	s := x.inspect(key)
	if len(s.Holds) != 1 {
		return false
	}
	ok, err := x.evictor.Evict(x.Context(), key, s.Holds[0].Print, backends.Eviction{})
	if err != nil {
		x.Fatalf("Evict: %v", err)
	}
	return ok
}

// wantForeign calls Evict, which must refuse what key has.
func (x *fixture) wantForeign(key, seen string, e backends.Eviction) {
	x.Helper()
	ok, err := x.evictor.Evict(x.Context(), key, seen, e)
	if ok || !errors.Is(err, backends.ErrForeign) {
		x.Fatalf("Evict(%.60q, %+v) = %v, %v; want an error that matches ErrForeign", key, e, ok, err)
	}
	x.wantPermanent("Evict", err)
}

// wantEvicted checks that Inspect tells an evicted hold.
func (x *fixture) wantEvicted(key, by string, l life) {
	x.Helper()
	began := time.Now()
	s := x.inspect(key)
	if s.Holding != 1 || len(s.Holds) != 1 || s.Foreign {
		x.Fatalf("State = %+v; want one hold", s)
	}
	h := s.Holds[0]
	if !h.Evicted || h.Holder != by || h.Foreign || h.Print == "" {
		x.Errorf("the hold is %+v; want it evicted by %q", h, by)
	}
	x.within(l, "the evicted hold", h.Left, began, time.Now())
}

// wantInTheWay checks the answer to a caller that an eviction keeps out.
func (x *fixture) wantInTheWay(res backends.Result, err error, by string) {
	x.Helper()
	if got, evicted := backends.EvictedBy(res.Holder); err != nil || res.OK || !evicted || got != by {
		x.Errorf("Result = %+v, %v; want a key that was evicted by %q", res, err, by)
	}
}

// closing is a ttl that ends during a sentence, and during which there is time for some calls.
func (x *fixture) closing() time.Duration {
	if x.Bubble {
		return 20 * time.Millisecond
	}
	return 500 * time.Millisecond
}

// ended is false if a hold may have ended: the machine was slow. Otherwise its eviction has failed.
func (x *fixture) ended(l life) bool {
	x.Helper()
	if x.lasts(l) {
		x.Fatalf("a hold that goes on was not evicted")
	}
	return false
}

// opens waits until done returns true, at the end of l.
func (x *fixture) opens(l life, done func() bool) {
	x.Helper()
	x.eventually("the key opens", l, done)
	if early := time.Until(l.earliest.Add(-x.tolerance())); early > 0 {
		x.Errorf("the key opens %v before the end of the evicted hold", early)
	}
}
