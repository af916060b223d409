package backendtest

import (
	"context"
	"time"
)

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
	{"Leave of one of two holds keeps the other, and its life", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "outer", x.long, 1)
		x.enter(key, "ann", "inner", 2*x.long, 2)
		x.leave(key, "inner")
		x.wantLife(key, l)
		x.enterNot(key, "bob", "theirs", x.long, l)
		l = x.enter(key, "ann", "inner", 2*x.long, 2)
		x.leave(key, "outer") // as well as the other way about
		x.enterNot(key, "bob", "theirs", x.long, l)
		x.renewNot(key, "outer", 3*x.long)
		x.enter(key, "ann", "inner", x.long, 1)
	}},
	{"Leave of a hold that has ended says false", func(x *fixture) {
		key := x.key("k")
		x.leaveNot(key, "one")
		x.wantNothing(key)
		x.endOf(key, x.enter(key, "ann", "one", 10*time.Millisecond, 1))
		x.leaveNot(key, "one")
		x.wantNothing(key)
	}},
	{"a second Leave says false and changes nothing", func(x *fixture) {
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
	{"Leave with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.enter(key, "ann", "one", x.long, 1)
		x.done("Leave", func(ctx context.Context) error {
			_, err := x.nested.Leave(ctx, key, "one")
			return err
		})
		x.wantLife(key, l)
	}},
}
