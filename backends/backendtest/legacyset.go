package backendtest

var setSentences = []sentence{
	{"SetNXForever stores in a free key, without expiry", func(x *fixture) {
		key := x.key("k")
		x.setForever(key, "mine", true)
		x.wantForever(key, "mine")
	}},
	{"SetNXForever of a key that is not free says false and changes nothing, not even with the same value", func(x *fixture) {
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
	{"SetNXForever stores in a key whose value has expired", func(x *fixture) {
		key := x.key("k")
		x.hasExpired(key)
		x.setForever(key, "mine", true)
		x.wantForever(key, "mine")
	}},
	{"Get returns the value, or that there is none", func(x *fixture) {
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
	{"GetSet stores without expiry whatever was there, and returns it", func(x *fixture) {
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
	{"Delete removes whatever is there, and says whether there was something", func(x *fixture) {
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
