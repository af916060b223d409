package backendtest

import (
	"context"
	"time"
)

var enterSentences = []sentence{
	{"a free key is granted: one hold, for its ttl", func(x *fixture) {
		for _, owner := range []string{"ann", ""} {
			key := x.key("of" + owner)
			x.wantLife(key, x.enter(key, owner, "one", x.long, 1))
		}
	}},
	{"the same owner enters again: one hold more, and the key lives as long as the longest", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		l := x.enter(key, "ann", "two", 3*x.long, 2)
		x.enter(key, "ann", "three", 2*x.long, 3)
		x.wantLife(key, l)
	}},
	{"another owner is refused, and Left says how long the last of the holds still lives", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", x.long, 1)
		l := x.enter(key, "ann", "two", 2*x.long, 2)
		time.Sleep(5 * x.Resolution)
		x.enterNot(key, "bob", "three", x.long, l)
		x.enter(key, "ann", "four", x.long, 3)
		x.enterNot(key, "bob", "five", 3*x.long, l)
	}},
	{"a refused Enter changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.enterNot(key, "bob", "two", 2*x.long, l)
		x.wantLife(key, l)
		x.renewNot(key, "two", 2*x.long)
		x.enterNot(key, "bob", "three", 2*x.long, l)
		x.enter(key, "ann", "four", x.long, 2)
	}},
	{"an empty owner never enters beside a hold, not even of an empty owner", func(x *fixture) {
		for _, owner := range []string{"ann", ""} {
			key := x.key("of" + owner)
			l := x.enter(key, owner, "one", x.long, 1)
			x.enterNot(key, "", "two", x.long, l)
			x.wantLife(key, l)
		}
	}},
	{"nobody enters beside an empty owner", func(x *fixture) {
		key := x.key("k")
		x.enterNot(key, "ann", "two", x.long, x.enter(key, "", "one", x.long, 1))
	}},
	{"a repeated Enter is granted, gives the hold its ttl anew, and is no second hold", func(x *fixture) {
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
	{"a repeated Enter never shortens the hold", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", 2*x.long, 1)
		x.enter(key, "ann", "one", x.long, 1)
		x.wantLife(key, l)
		x.enterNot(key, "bob", "two", x.long, l)
	}},
	{"an inner hold with a shorter ttl never shortens the outer", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "outer", x.long, 1)
		inner := x.enter(key, "ann", "inner", 10*time.Millisecond, 2)
		x.wantLife(key, l)
		x.holdsBecome(key, "ann", "outer", 1, inner)
		x.wantLife(key, x.enter(key, "ann", "outer", x.long, 1))
		x.renew(key, "outer", x.long)
	}},
	{"a hold ends in its time though an inner one goes on, and does not count then", func(x *fixture) {
		key := x.key("k")
		outer := x.enter(key, "ann", "outer", 20*time.Millisecond, 1)
		x.enter(key, "ann", "inner", x.long, 0) // two, unless the machine was slow
		x.holdsBecome(key, "ann", "inner", 1, outer)
		x.renewNot(key, "outer", x.long)
		x.leaveNot(key, "outer")
		x.enter(key, "ann", "next", x.long, 2)
		x.enter(key, "ann", "outer", x.long, 3) // which is a new one
	}},
	{"a hold that has ended can be entered anew beside another one, and is there", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "outer", x.long, 1)
		l := x.enter(key, "ann", "inner", 10*time.Millisecond, 2)
		time.Sleep(time.Until(l.latest.Add(x.tolerance()))) // with no call that would clear it away
		x.enter(key, "ann", "inner", x.long, 2)
		x.renew(key, "inner", x.long)
		x.leave(key, "outer")
		x.leave(key, "inner")
		x.wantNothing(key)
	}},
	{"a hold never lives shorter than asked, not by a fraction of a millisecond", func(x *fixture) {
		for _, ttl := range fractions {
			key := x.key(ttl.String())
			x.livesUntil(key, x.enter(key, "ann", "one", ttl, 1))
		}
	}},
	{"the end of the last hold frees the key, and not before", func(x *fixture) {
		key := x.key("k")
		x.enter(key, "ann", "one", time.Millisecond, 0)
		l := x.enter(key, "ann", "two", 20*time.Millisecond, 0)
		x.eventually("the key is free", l, func() bool {
			res, err := x.nested.Enter(x.Context(), key, "bob", "three", x.long)
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
	{"Enter with a ttl out of the limits is refused, and enters nothing", func(x *fixture) {
		x.outOfLimits("Enter", func(key string, ttl time.Duration) error {
			_, err := x.nested.Enter(x.Context(), key, "ann", "two", ttl)
			return err
		})
	}},
	{"Enter with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.done("Enter", func(ctx context.Context) error {
			_, err := x.nested.Enter(ctx, key, "ann", "one", x.long)
			return err
		})
		x.wantNothing(key)
	}},
}
