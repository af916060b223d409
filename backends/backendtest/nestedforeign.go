package backendtest

import (
	"errors"

	"github.com/lockstep-go/lockstep/backends"
)

var nestedRefusalSentences = []sentence{
	{"a value of another type is an error that matches ErrWrongType, and stays", func(x *fixture) {
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
				res, err := x.nested.Enter(x.Context(), key, owner, "one", x.long)
				check("Enter", res.OK, err)
			}
			for _, token := range []string{"one", "value"} {
				ok, err := x.nested.Renew(x.Context(), key, token, x.long)
				check("Renew", ok, err)
				ok, err = x.nested.Leave(x.Context(), key, token)
				check("Leave", ok, err)
			}
		}
	}},
	{"a value of the type of holds without expiry is refused as foreign, with no Left, and stays", func(x *fixture) {
		key := x.key("k")
		x.setNested(key)
		for _, owner := range []string{"ann", ""} {
			res, err := x.nested.Enter(x.Context(), key, owner, "one", x.long)
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
