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

var ofShared = suite[backends.SharedStore, SharedOutside]{
	sentences: func(h SharedHarness) []sentence {
		return slices.Concat(
			enterSentences,
			renewSentences,
			leaveSentences,
			sharedRefusalSentences,
			admissionSentences,
			slotSentences,
			sharedByteSentences,
			sharedConcurrencySentences,
			sharedWatching(h.NoWatch),
		)
	},
	give: func(x *fixture, store backends.SharedStore, outside SharedOutside) {
		x.shared, x.store, x.setShared = store, soleHolds{store}, outside.SetShared
	},
}

var enterSentences = []sentence{
	{"Enter of a free key is granted: one hold, for ttl", func(x *fixture) {
		for _, owner := range []string{"ann", ""} {
			key := x.key("of" + owner)
			x.wantLife(key, x.enter(key, owner, "one", x.long, 1))
		}
	}},
	{"Enter of the same owner adds a hold, and the key lives as long as its longest hold", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		l := x.enter(key, "ann", "two", 3*x.long, 2)
		x.enter(key, "ann", "three", 2*x.long, 3)
		x.wantLife(key, l)
	}},
	{"the key is held for another owner, and Left is the remaining life of the longest hold", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		l := x.enter(key, "ann", "two", 2*x.long, 2)
		time.Sleep(5 * x.Resolution)
		x.enterNot(key, "bob", "three", x.long, l)
		x.enter(key, "ann", "four", x.long, 3)
		x.enterNot(key, "bob", "five", 3*x.long, l)
	}},
	{"Enter of a held key changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.enterNot(key, "bob", "two", 2*x.long, l)
		x.wantLife(key, l)
		x.renewNot(key, "two", 2*x.long)
		x.enterNot(key, "bob", "three", 2*x.long, l)
		x.enter(key, "ann", "four", x.long, 2)
	}},
	{"an empty owner never enters a held key, not even one of an empty owner", func(x *fixture) {
		for _, owner := range []string{"ann", ""} {
			key := x.key("of" + owner)
			l := x.enter(key, owner, "one", x.long, 1)
			x.enterNot(key, "", "two", x.long, l)
			x.wantLife(key, l)
		}
	}},
	{"no owner enters a key of an empty owner", func(x *fixture) {
		key := x.key("k")
		x.enterNot(key, "ann", "two", x.long, x.enter(key, "", "one", x.long, 1))
	}},
	{"a second Enter of a hold is granted with ttl from then on, and counts once", func(x *fixture) {
		for _, owner := range []string{"ann", ""} {
			key := x.key("of" + owner)
			x.enter(key, owner, "one", x.long, 1)
			time.Sleep(5 * x.Resolution)
			x.wantLife(key, x.enter(key, owner, "one", x.long, 1))
			x.wantLife(key, x.enter(key, owner, "one", 2*x.long, 1))
			x.leave(key, "one")
			x.wantNothing(key)
		}
	}},
	{"a second Enter never shortens the hold", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", 2*x.long, 1)
		x.enter(key, "ann", "one", x.long, 1)
		x.wantLife(key, l)
		x.enterNot(key, "bob", "two", x.long, l)
	}},
	{"an inner hold with a shorter ttl never shortens the outer hold", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "outer", x.long, 1)
		inner := x.enter(key, "ann", "inner", 10*time.Millisecond, 2)
		x.wantLife(key, l)
		x.holdsBecome(key, "ann", "outer", 1, inner)
		x.wantLife(key, x.enter(key, "ann", "outer", x.long, 1))
		x.renew(key, "outer", x.long)
	}},
	{"a hold ends in its time while an inner hold lives on, and does not count any more", func(x *fixture) {
		key := x.key("k")
		outer := x.enter(key, "ann", "outer", 20*time.Millisecond, 1)
		x.enter(key, "ann", "inner", x.long, 0) // two holds, unless the machine was slow
		x.holdsBecome(key, "ann", "inner", 1, outer)
		x.renewNot(key, "outer", x.long)
		x.leaveNot(key, "outer")
		x.enter(key, "ann", "next", x.long, 2)
		x.enter(key, "ann", "outer", x.long, 3) // a new hold
	}},
	{"a hold that has ended can be entered again beside another hold", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "outer", x.long, 1)
		l := x.enter(key, "ann", "inner", 10*time.Millisecond, 2)
		time.Sleep(time.Until(l.latest.Add(x.tolerance()))) // without a call that would remove the hold
		x.enter(key, "ann", "inner", x.long, 2)
		x.renew(key, "inner", x.long)
		x.leave(key, "outer")
		x.leave(key, "inner")
		x.wantNothing(key)
	}},
	{"a hold never lives shorter than its ttl, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.livesUntil(key, x.enter(key, "ann", "one", ttl, 1))
		}
	}},
	{"a key is free when its last hold has ended, and not before", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", time.Millisecond, 0)
		l := x.enter(key, "ann", "two", 20*time.Millisecond, 0)
		x.eventually("the key is free", l, func() bool {
			res, err := x.shared.Enter(x.Context(), key, "three", x.long, of("bob"))
			if ended := time.Now(); err != nil || res.OK && ended.Before(l.earliest) {
				x.Fatalf("Enter = %+v, %v; %v before the end of the last hold", res, err, l.earliest.Sub(ended))
			}
			if res.OK && res.Holds != 1 {
				x.Fatalf("%d holds; want 1", res.Holds)
			}
			return res.OK
		})
		x.renewNot(key, "two", x.long)
	}},
	{"Enter with a ttl outside the limits is a permanent error, and changes nothing", func(x *fixture) {
		x.outOfLimits("Enter", func(key string, ttl time.Duration) error {
			_, err := x.shared.Enter(x.Context(), key, "two", ttl, of("ann"))
			return err
		})
	}},
	{"Enter with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.done("Enter", func(ctx context.Context) error {
			_, err := x.shared.Enter(ctx, key, "one", x.long, of("ann"))
			return err
		})
		x.wantNothing(key)
	}},
}

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
	{"a hold never lives shorter than the ttl of its Renew, not even by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.enter(key, "ann", "one", time.Millisecond, 1)
			began := time.Now()
			ok, err := x.shared.Renew(x.Context(), key, "one", ttl)
			if err != nil {
				x.Fatalf("Renew: %v", err)
			}
			if ok { // else it was too late, and the machine slow
				x.livesUntil(key, life{earliest: began.Add(ttl)})
			}
		}
	}},
	{"a hold that was renewed or entered again keeps others out after the end that it had first", func(x *fixture) {
		for says, again := range map[string]func(key string) (bool, error){
			"renewed": func(key string) (bool, error) { return x.shared.Renew(x.Context(), key, "one", x.long) },
			"entered": func(key string) (bool, error) {
				res, err := x.shared.Enter(x.Context(), key, "one", x.long, of("ann"))
				return res.OK, err
			},
		} {
			key := x.key(says)
			l := x.prolonged(func(ttl time.Duration) life { return x.enter(key, "ann", "one", ttl, 1) }, func() (bool, error) { return again(key) })
			x.enterNot(key, "bob", "two", x.long, l)
			x.enter(key, "ann", "three", x.long, 2)
		}
	}},
	{"Renew of one hold neither prolongs another hold nor brings it back", func(x *fixture) {
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
	{"Renew of an unknown hold returns false and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.renewNot(key, "one", x.long)
		x.wantNothing(key)
		l := x.enter(key, "ann", "one", x.long, 1)
		x.renewNot(key, "two", 2*x.long)
		x.renewNot(key, "ann", 2*x.long)
		x.wantLife(key, l)
		x.enter(key, "ann", "three", x.long, 2)
	}},
	{"Renew of the last hold after its end returns false and does not bring it back", func(x *fixture) {
		key := x.key("k")
		x.endOf(key, x.enter(key, "ann", "one", 10*time.Millisecond, 1))
		x.renewNot(key, "one", x.long)
		x.wantNothing(key)
	}},
	{"Renew with a ttl outside the limits is a permanent error, and changes nothing", func(x *fixture) {
		x.outOfLimits("Renew", func(key string, ttl time.Duration) error {
			_, err := x.shared.Renew(x.Context(), key, "one", ttl)
			return err
		})
	}},
	{"Renew with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.done("Renew", func(ctx context.Context) error {
			_, err := x.shared.Renew(ctx, key, "one", 2*x.long)
			return err
		})
		x.wantLife(key, l)
	}},
}

var leaveSentences = []sentence{
	{"Leave of the last hold frees the key", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		x.enter(key, "ann", "two", x.long, 2)
		x.leave(key, "one")
		x.leave(key, "two")
		x.wantNothing(key)
		x.wantLife(key, x.enter(key, "bob", "three", x.long, 1))
	}},
	{"Leave of one of two holds leaves the other hold and its life alone", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "outer", x.long, 1)
		x.enter(key, "ann", "inner", 2*x.long, 2)
		x.leave(key, "inner")
		x.wantLife(key, l)
		x.enterNot(key, "bob", "theirs", x.long, l)
		l = x.enter(key, "ann", "inner", 2*x.long, 2)
		x.leave(key, "outer") // the same with the outer hold
		x.enterNot(key, "bob", "theirs", x.long, l)
		x.renewNot(key, "outer", 3*x.long)
		x.enter(key, "ann", "inner", x.long, 1)
	}},
	{"Leave of a hold that has ended returns false", func(x *fixture) {
		key := x.key("k")
		x.leaveNot(key, "one")
		x.wantNothing(key)
		x.endOf(key, x.enter(key, "ann", "one", 10*time.Millisecond, 1))
		x.leaveNot(key, "one")
		x.wantNothing(key)
	}},
	{"a second Leave returns false and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		l := x.enter(key, "ann", "two", x.long, 2)
		x.leave(key, "one")
		x.leaveNot(key, "one")
		x.leaveNot(key, "ann")
		x.wantLife(key, l)
		x.leave(key, "two")
		x.leaveNot(key, "two")
	}},
	{"a late Leave leaves the next owner alone", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		x.leave(key, "one")
		l := x.enter(key, "bob", "two", x.long, 1)
		x.leaveNot(key, "one")
		x.wantLife(key, l)
		x.renew(key, "two", x.long)
	}},
	{"Leave with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.done("Leave", func(ctx context.Context) error {
			_, err := x.shared.Leave(ctx, key, "one")
			return err
		})
		x.wantLife(key, l)
	}},
}

var admissionSentences = []sentence{
	{"as many holds are admitted as the limit says; Holds counts them, and Room the rest", func(x *fixture) {
		key := x.key("k")
		for i := range 3 {
			x.admit(key, fmt.Sprint("token", i), x.long, backends.Admission{Limit: 3}, i+1, 2-i)
		}
		x.admit(key, "token0", x.long, backends.Admission{Limit: 3}, 3, 0) // it is there
		x.admitNot(key, "one more", backends.Admission{Limit: 3}, 3)
		x.leave(key, "token1")
		x.admit(key, "one more", x.long, backends.Admission{Limit: 3}, 3, 0)
	}},
	{"without a limit any number of holds is admitted, and Room is -1", func(x *fixture) {
		key := x.key("k")
		for i := range 20 {
			x.admit(key, fmt.Sprint("token", i), x.long, backends.Admission{Group: "g"}, i+1, -1)
		}
	}},
	{"a lower limit ends no hold, and admits nobody until fewer are left", func(x *fixture) {
		key := x.key("k")
		for i := range 5 {
			x.admit(key, fmt.Sprint("token", i), x.long, backends.Admission{Limit: 5}, i+1, 4-i)
		}
		for i := range 3 {
			x.admitNot(key, "late", backends.Admission{Limit: 3}, 5-i)
			x.renew(key, fmt.Sprint("token", i), x.long)
			x.leave(key, fmt.Sprint("token", i))
		}
		x.admit(key, "late", x.long, backends.Admission{Limit: 3}, 3, 0)
		x.admit(key, "later", x.long, backends.Admission{Limit: 5}, 4, 1)
	}},
	{"Left is until as many holds have ended as are too many for the limit", func(x *fixture) {
		key := x.key("k")
		first := x.admit(key, "one", x.long, backends.Admission{Limit: 3}, 1, 2)
		second := x.admit(key, "two", 2*x.long, backends.Admission{Limit: 3}, 2, 1)
		third := x.admit(key, "three", 3*x.long, backends.Admission{Limit: 3}, 3, 0)
		for _, c := range []struct {
			a    backends.Admission
			ends life
		}{
			{backends.Admission{Limit: 3}, first},
			{backends.Admission{Limit: 2}, second},
			{backends.Admission{Limit: 1}, third},
			{backends.Admission{Group: "other", Limit: 3}, third},
		} {
			began := time.Now()
			res := x.admitNot(key, "late", c.a, 3)
			if x.NoLeft {
				continue
			}
			x.within(c.ends, "Enter", res.Left, began, time.Now())
		}
	}},
	{"holds of another group keep out, whatever the limit and whichever has no name", func(x *fixture) {
		for i, groups := range [][2]string{{"a", "b"}, {"", "b"}, {"a", ""}} {
			key := x.key(fmt.Sprint("k", i))
			x.admit(key, "one", x.long, backends.Admission{Group: groups[0], Limit: 5}, 1, 4)
			for _, limit := range []int{0, 1, 5} {
				x.admitNot(key, "two", backends.Admission{Group: groups[1], Limit: limit}, 1)
			}
			x.leave(key, "one")
			x.admit(key, "two", x.long, backends.Admission{Group: groups[1], Limit: 5}, 1, 4)
			x.admitNot(key, "one", backends.Admission{Group: groups[0], Limit: 5}, 1)
		}
	}},
	{"a hold that has ended makes room, whatever the others renew", func(x *fixture) {
		key := x.key("k")
		two := backends.Admission{Limit: 2}
		x.admit(key, "alive", x.long, two, 1, 1)
		dead, err := time.Now(), error(nil)
		ended := x.admit(key, "dead", 20*time.Millisecond, two, 0, 0)
		x.eventually("there is room", ended, func() bool {
			x.renew(key, "alive", 2*x.long)
			var res backends.Result
			if res, err = x.shared.Enter(x.Context(), key, "next", x.long, two); err != nil {
				x.Fatalf("Enter: %v", err)
			}
			if res.OK && time.Now().Before(ended.earliest) {
				x.Fatalf("granted %v after a hold of 20 ms began", time.Since(dead))
			}
			return res.OK
		})
		x.renewNot(key, "dead", x.long)
	}},
	{"a hold that has ended is one like any other when its room is taken", func(x *fixture) {
		one := backends.Admission{Limit: 1}
		for ttl, end := range map[time.Duration]func(key string, l life){
			x.long:                func(key string, _ life) { x.leave(key, "mine") },
			10 * time.Millisecond: x.endOf,
		} {
			key := x.key(ttl.String())
			end(key, x.admit(key, "mine", ttl, one, 1, 0))
			x.admit(key, "theirs", x.long, one, 1, 0)
			x.admitNot(key, "mine", one, 1)
			x.renewNot(key, "mine", x.long)
			x.leaveNot(key, "mine")
			x.renew(key, "theirs", x.long)
		}
	}},
	{"an epoch is over when its last hold has ended by itself", func(x *fixture) {
		key, a := x.key("k"), backends.Admission{Group: "g", Numbered: true}
		res, err := x.shared.Enter(x.Context(), key, "one", 10*time.Millisecond, a)
		if err != nil || !res.OK {
			x.Fatalf("Enter = %+v, %v; want it granted", res, err)
		}
		x.endOf(key, life{latest: time.Now().Add(10 * time.Millisecond)})
		next := x.enterNumbered(key, "two", a)
		if next <= res.Fence {
			x.Errorf("the next epoch has the number %d after %d", next, res.Fence)
		}
		if n := x.enterNumbered(key, "one", a); n != next {
			x.Errorf("a hold that comes back has the number %d; want that of the epoch, %d", n, next)
		}
	}},
	{"a number is that of the epoch, and a new epoch has a greater one", func(x *fixture) {
		key := x.key("k")
		numbered := backends.Admission{Group: "g", Numbered: true}
		enter := func(token string) uint64 {
			res, err := x.shared.Enter(x.Context(), key, token, x.long, numbered)
			if err != nil || !res.OK || res.Fence < 1 || res.Fence >= 1<<53 {
				x.Fatalf("Enter = %+v, %v; want it granted, with a number from 1 to 2^53-1", res, err)
			}
			return res.Fence
		}
		var last uint64
		for range 3 {
			first := enter("one")
			if first <= last {
				x.Fatalf("a new epoch has the number %d after %d", first, last)
			}
			last = first
			for _, token := range []string{"two", "one"} {
				if n := enter(token); n != first {
					x.Fatalf("Enter of %q has the number %d; want that of its epoch, %d", token, n, first)
				}
			}
			x.leave(key, "one")
			if n := enter("three"); n != first {
				x.Fatalf("a hold that joins another has the number %d; want that of its epoch, %d", n, first)
			}
			x.leave(key, "two")
			x.leave(key, "three")
		}
	}},
}

var sharedRefusalSentences = []sentence{
	{"a value of another type is a permanent error that matches ErrWrongType, and stays", func(x *fixture) {
		other, lock := x.key("other"), x.key("lock")
		x.outside.SetOther(other)
		x.outside.Set(lock, "value", 0)
		for key, value := range map[string]string{other: "", lock: "value"} {
			check := func(call string, ok bool, err error) {
				if ok || !errors.Is(err, backends.ErrWrongType) {
					x.Fatalf("%s = %v, %v; want an error that matches ErrWrongType", call, ok, err)
				}
				x.wantPermanent(call, err)
				x.wantForever(key, value)
			}
			for _, owner := range []string{"ann", "value", ""} {
				res, err := x.shared.Enter(x.Context(), key, "one", x.long, of(owner))
				check("Enter", res.OK, err)
			}
			for _, token := range []string{"one", "value"} {
				ok, err := x.shared.Renew(x.Context(), key, token, x.long)
				check("Renew", ok, err)
				ok, err = x.shared.Leave(x.Context(), key, token)
				check("Leave", ok, err)
			}
		}
	}},
	{"a value of the type of holds without expiry is Foreign, without Left, and stays", func(x *fixture) {
		key := x.key("k")
		x.setShared(key)
		for _, owner := range []string{"ann", ""} {
			res, err := x.shared.Enter(x.Context(), key, "one", x.long, of(owner))
			if want := (backends.Result{Foreign: true}); err != nil || res != want {
				x.Fatalf("Enter = %+v, %v; want %+v", res, err, want)
			}
			x.wantForever(key, "")
		}
		x.renewNot(key, "one", x.long)
		x.wantForever(key, "")
		x.leaveNot(key, "one")
		x.wantForever(key, "")
	}},
}

// oddTokens include names that a store might give to data of its own beside the holds.
var oddTokens = append(slices.Clone(oddValues),
	"owner", "Owner", "_owner", "@owner", ":owner", "lockstep:owner", "o", "holds", "count", "hold:token", "hold:", "token:", "\x00group:owner:ann", "\x00group:",
	"expires", "deadline", "ttl", "-1", "1e309", "nan", "inf", "1.5", "9007199254740993", "null", "true", "ann",
	"token ", " token", "Token",
)

var sharedByteSentences = []sentence{
	{"a token may be any text, and no text has a special meaning", func(x *fixture) {
		key := x.key("k")
		for i, token := range oddTokens {
			x.enter(key, "ann", token, x.long, i+1)
		}
		for _, token := range oddTokens {
			x.enter(key, "ann", token, x.long, len(oddTokens))
			x.renew(key, token, x.long)
			x.renewNot(key, token+"~", x.long)
			x.leaveNot(key, "~"+token)
		}
		for i, token := range oddTokens {
			x.leave(key, token)
			x.leaveNot(key, token)
			if i+1 < len(oddTokens) {
				x.enter(key, "ann", oddTokens[i+1], x.long, len(oddTokens)-i-1)
			}
		}
		x.wantNothing(key)
	}},
	{"an owner may be any text, and owners match only if all their bytes are equal", func(x *fixture) {
		for i, owner := range oddTokens {
			key := x.key(fmt.Sprint("k", i))
			l := x.enter(key, owner, "one", 2*x.long, 1)
			for next := 1; next < 6; next++ { // texts that look alike are neighbours
				x.enterNot(key, oddTokens[(i+next)%len(oddTokens)], "two", x.long, l)
			}
			x.enterNot(key, owner+" ", "two", x.long, l)
			x.enterNot(key, owner[1:], "two", x.long, l)
			x.enter(key, owner, "two", x.long, 2)
			x.leave(key, "one")
			x.leave(key, "two")
			x.wantNothing(key)
		}
	}},
	{"keys that differ in any byte are different keys", func(x *fixture) {
		keys := x.oddKeys()
		for i, key := range keys {
			x.enter(key, fmt.Sprint("owner", i), "one", x.long, 1)
			x.enter(key, fmt.Sprint("owner", i), "two", x.long, 2)
		}
		for _, key := range keys {
			x.renew(key, "one", 2*x.long)
			x.leave(key, "one")
			x.leave(key, "two")
			x.wantNothing(key)
		}
	}},
}

var sharedConcurrencySentences = []sentence{
	{"of owners that enter at the same time exactly one is granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var winners atomic.Int64
			together(callers, func(i int) {
				owner := fmt.Sprint("owner", i)
				if i%2 == 0 {
					owner = ""
				}
				res, err := x.shared.Enter(x.Context(), key, fmt.Sprint("token", i), x.long, of(owner))
				if err != nil {
					x.Errorf("Enter: %v", err)
				}
				if res.OK {
					winners.Add(1)
				}
			})
			if n := winners.Load(); n != 1 {
				x.Fatalf("%d of %d owners were granted the key", n, callers)
			}
		}
	}},
	{"of callers that enter at the same time as many are granted as the limit says, each with a slot of its own", func(x *fixture) {
		const limit = 3
		for _, a := range []backends.Admission{{Group: "g", Limit: limit}, slotted(limit)} {
			key := x.key(fmt.Sprint("k", a.Slots))
			var mu sync.Mutex
			var counts, slots []int
			together(callers, func(i int) {
				res, err := x.shared.Enter(x.Context(), key, fmt.Sprint("token", i), x.long, a)
				if err != nil {
					x.Errorf("Enter: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if res.OK {
					counts, slots = append(counts, res.Holds), append(slots, res.Slot)
				}
			})
			slices.Sort(counts)
			slices.Sort(slots)
			if all := []int{1, 2, limit}; !slices.Equal(counts, all) {
				x.Fatalf("a limit of %d: %d of %d callers were granted, with Holds %v; want %v", limit, len(counts), callers, counts, all)
			}
			if all := []int{0, 1, limit - 1}; a.Slots && !slices.Equal(slots, all) {
				x.Fatalf("the slots are %v; want %v", slots, all)
			}
		}
	}},
	{"holds of one owner that enter at the same time all count", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var mu sync.Mutex
			var counts []int
			together(callers, func(i int) {
				res, err := x.shared.Enter(x.Context(), key, fmt.Sprint("token", i), x.long, of("ann"))
				if err != nil || !res.OK {
					x.Errorf("Enter = %+v, %v; want it granted", res, err)
				}
				mu.Lock()
				defer mu.Unlock()
				counts = append(counts, res.Holds)
			})
			slices.Sort(counts)
			for i, n := range counts {
				if n != i+1 {
					x.Fatalf("the counts of holds were %v; want each from 1 to %d", counts, callers)
				}
			}
		}
	}},
	{"of concurrent Leave calls of one hold exactly one returns true", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.enter(key, "ann", "one", x.long, 1)
			var left atomic.Int64
			together(callers, func(int) {
				ok, err := x.shared.Leave(x.Context(), key, "one")
				if err != nil {
					x.Errorf("Leave: %v", err)
				}
				if ok {
					left.Add(1)
				}
			})
			if n := left.Load(); n != 1 {
				x.Fatalf("%d of %d callers ended the hold", n, callers)
			}
		}
	}},
	{"Renew never brings back a hold that left during the call", func(x *fixture) {
		for round := range 2 {
			key := x.key(fmt.Sprint("round", round))
			x.enter(key, "ann", "one", x.long, 1)
			x.enter(key, "ann", "other", x.long, 2)
			together(callers, func(i int) {
				var err error
				if i%4 == 0 {
					_, err = x.shared.Leave(x.Context(), key, "one")
				} else {
					_, err = x.shared.Renew(x.Context(), key, "one", x.long)
				}
				if err != nil {
					x.Errorf("%v", err)
				}
			})
			x.renewNot(key, "one", x.long)
			x.leave(key, "other")
			x.wantNothing(key)
		}
	}},
	{"concurrent Enter and Leave calls of different holds do not affect each other", func(x *fixture) {
		for round := range 2 {
			key := x.key(fmt.Sprint("round", round))
			for i := range callers / 2 {
				x.enter(key, "ann", fmt.Sprint("old", i), x.long, i+1)
			}
			together(callers, func(i int) {
				if i%2 == 0 {
					if ok, err := x.shared.Leave(x.Context(), key, fmt.Sprint("old", i/2)); err != nil || !ok {
						x.Errorf("Leave = %v, %v; want true", ok, err)
					}
					return
				}
				res, err := x.shared.Enter(x.Context(), key, fmt.Sprint("new", i/2), x.long, of("ann"))
				if err != nil || !res.OK {
					x.Errorf("Enter = %+v, %v; want it granted", res, err)
				}
			})
			for i := range callers / 2 {
				x.enter(key, "ann", fmt.Sprint("new", i), x.long, callers/2)
			}
			for i := range callers / 2 {
				x.leave(key, fmt.Sprint("new", i))
			}
			x.wantNothing(key)
		}
	}},
}

// sharedWatching has the sentences of Watch, about a lock of one hold.
func sharedWatching(noWatch bool) []sentence {
	sentences := slices.Clone(watching(noWatch))
	for i := range sentences {
		sentences[i].says = ofHolds(sentences[i].says)
	}
	if noWatch {
		return sentences
	}
	return append(sentences, sentence{"Leave wakes the watchers also if other holds go on", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "one", x.long, backends.Admission{Limit: 2}, 1, 1)
		x.admit(key, "two", x.long, backends.Admission{Limit: 2}, 2, 0)
		w := x.watch(x.Context(), key)
		x.leave(key, "one")
		x.wantWake(w)
	}})
}

func ofHolds(says string) string { return strings.ReplaceAll(says, "DeleteIf", "Leave") }

// soleHolds is a plain store whose values are holds without an owner.
type soleHolds struct{ backends.SharedStore }

func (s soleHolds) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.Enter(ctx, key, value, ttl, of(""))
}

func (s soleHolds) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return s.Renew(ctx, key, value, ttl)
}

func (s soleHolds) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return s.Leave(ctx, key, value)
}

// of admits the holds of one owner together, as strategy reentrant does, and one hold without an
// owner.
func of(owner string) backends.Admission {
	a := backends.Admission{Group: "owner:" + owner}
	if owner == "" {
		a.Limit = 1
	}
	return a
}

// enter calls Enter, which must be granted, with this number of holds; 0: any.
func (x *fixture) enter(key, owner, token string, ttl time.Duration, holds int) life {
	x.Helper()
	began := time.Now()
	res, err := x.shared.Enter(x.Context(), key, token, ttl, of(owner))
	if err != nil || !res.OK {
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) = %+v, %v; want it granted", key, owner, token, ttl, res, err)
	}
	if res.Holds != holds && holds != 0 {
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) gives %d holds; want %d", key, owner, token, ttl, res.Holds, holds)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// admit calls Enter, which must be granted, with so many holds, and room for so many; 0 holds: any.
func (x *fixture) admit(key, token string, ttl time.Duration, a backends.Admission, holds, room int) life {
	x.Helper()
	began := time.Now()
	res, err := x.shared.Enter(x.Context(), key, token, ttl, a)
	if err != nil || !res.OK {
		x.Fatalf("Enter(%.60q, %+v) = %+v, %v; want it granted", token, a, res, err)
	}
	if holds > 0 && (res.Holds != holds || res.Room != room) {
		x.Fatalf("Enter(%.60q, %+v) gives Holds %d and Room %d; want %d and %d", token, a, res.Holds, res.Room, holds, room)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// admitNot calls Enter, which must find so many holds in the way.
func (x *fixture) admitNot(key, token string, a backends.Admission, holds int) backends.Result {
	x.Helper()
	res, err := x.shared.Enter(x.Context(), key, token, x.long, a)
	if err != nil || res.OK || res.Foreign || res.Holds != holds {
		x.Fatalf("Enter(%.60q, %+v) = %+v, %v; want it held by %d", token, a, res, err, holds)
	}
	return res
}

// enterNot calls Enter, which must find the key held by holds, the last of which has the life l.
func (x *fixture) enterNot(key, owner, token string, ttl time.Duration, l life) {
	x.Helper()
	began := time.Now()
	res, err := x.shared.Enter(x.Context(), key, token, ttl, of(owner))
	ended := time.Now()
	switch {
	case err != nil || res.OK || res.Foreign || res.Holds < 1:
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) = %+v, %v; want it held", key, owner, token, ttl, res, err)
	case x.NoLeft && res.Left != 0:
		x.Errorf("Enter: %v left; want 0, because of NoLeft", res.Left)
	case !x.NoLeft:
		x.within(l, "Enter", res.Left, began, ended)
	}
}

// renew calls Renew, which must find the hold.
func (x *fixture) renew(key, token string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	if ok, err := x.shared.Renew(x.Context(), key, token, ttl); err != nil || !ok {
		x.Fatalf("Renew(%.60q, %.60q, %v) = %v, %v; want true", key, token, ttl, ok, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// renewNot calls Renew, which must not find the hold.
func (x *fixture) renewNot(key, token string, ttl time.Duration) {
	x.Helper()
	if ok, err := x.shared.Renew(x.Context(), key, token, ttl); err != nil || ok {
		x.Fatalf("Renew(%.60q, %.60q, %v) = %v, %v; want false", key, token, ttl, ok, err)
	}
}

// leave calls Leave, which must find the hold.
func (x *fixture) leave(key, token string) {
	x.Helper()
	if ok, err := x.shared.Leave(x.Context(), key, token); err != nil || !ok {
		x.Fatalf("Leave(%.60q, %.60q) = %v, %v; want true", key, token, ok, err)
	}
}

// leaveNot calls Leave, which must not find the hold.
func (x *fixture) leaveNot(key, token string) {
	x.Helper()
	if ok, err := x.shared.Leave(x.Context(), key, token); err != nil || ok {
		x.Fatalf("Leave(%.60q, %.60q) = %v, %v; want false", key, token, ok, err)
	}
}

// wantLife checks from outside that key is held, with the life l.
func (x *fixture) wantLife(key string, l life) {
	x.Helper()
	began := time.Now()
	_, left, ok := x.outside.Get(key)
	ended := time.Now()
	if !ok {
		x.Fatalf("%.60q is free; want it held", key)
	}
	x.within(l, "the key", left, began, ended)
}

// holdsBecome waits for the end of a hold with the life ending, until there are want holds. It
// counts them by an Enter of the hold token, which remains.
func (x *fixture) holdsBecome(key, owner, token string, want int, ending life) {
	x.Helper()
	x.eventually("the hold has ended", ending, func() bool {
		res, err := x.shared.Enter(x.Context(), key, token, x.long, of(owner))
		if ended := time.Now(); err != nil || !res.OK || res.Holds <= want && ended.Before(ending.earliest) {
			x.Fatalf("Enter = %+v, %v; %v before the end of a hold", res, err, ending.earliest.Sub(ended))
		}
		return res.Holds == want
	})
}

// endOf waits until key is free, because its only hold, with the life l, has ended.
func (x *fixture) endOf(key string, l life) {
	x.Helper()
	x.eventually("the hold has ended", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
}

// outOfLimits checks that call fails for a bad ttl, and changes nothing. With a good ttl it would
// change the life of the hold "one", or add a hold.
func (x *fixture) outOfLimits(name string, call func(key string, ttl time.Duration) error) {
	x.Helper()
	key := x.key("k")
	for _, ttl := range []time.Duration{x.MaxTTL + time.Millisecond, time.Millisecond - 1, 0, -x.long} {
		l := x.enter(key, "ann", "one", x.long, 1)
		err := call(key, ttl)
		if err == nil {
			x.Fatalf("%s with a ttl of %v: no error", name, ttl)
		}
		x.wantPermanent(name, err)
		if ttl > x.MaxTTL && !strings.Contains(err.Error(), x.MaxTTL.String()) {
			x.Errorf("error %q does not name the limit as %v", err, x.MaxTTL)
		}
		x.wantLife(key, l)
		x.leave(key, "one")
		x.wantNothing(key)
	}
}
