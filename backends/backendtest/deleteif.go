package backendtest

import "time"

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
