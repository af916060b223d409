package backendtest

import (
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

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
