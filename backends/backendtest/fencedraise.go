package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var raiseSentences = []sentence{
	{"RaiseFence by the holder lands, and the next number is greater", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		to := x.next(key, "mine", n, 0) + uint64(time.Hour/time.Microsecond)
		x.raise(key, "mine", to, true)
		x.remove(key, "mine")
		x.numbered(key, "mine", n, to+1)
	})},
	{"RaiseFence to the present number lands", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		number := x.next(key, "mine", n, 0)
		x.raise(key, "mine", number, true)
		x.numbered(key, "mine", n, number)
		x.remove(key, "mine")
		x.next(key, "mine", n, number)
	})},
	{"RaiseFence done again says the same", func(x *fixture) {
		key := x.key("k")
		x.next(key, "mine", byCount, 0)
		for range 3 {
			x.raise(key, "mine", 7, true)
		}
		x.numbered(key, "mine", byCount, 7)
	}},
	{"RaiseFence never lowers a number", func(x *fixture) {
		key := x.key("k")
		x.next(key, "mine", byCount, 0)
		for _, to := range []uint64{9, 10, 100, 101} { // texts that are in another order
			x.raise(key, "mine", to, true)
			x.raise(key, "mine", to-1, false)
			x.raise(key, "mine", 0, false)
		}
		x.remove(key, "mine")
		x.numbered(key, "mine", byCount, 102)
	}},
	{"a repeated SetNXFenced has the number that it was raised to", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		to := x.next(key, "mine", n, 0) + 1000
		x.raise(key, "mine", to, true)
		x.numbered(key, "mine", n, to)
	})},
	{"RaiseFence gives a number to a key that has none", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.raise(key, "mine", 7, true)
		x.remove(key, "mine")
		x.numbered(key, "mine", byCount, 8)
	}},
	{"numbers are exact below 2^53", both(func(x *fixture, n numbering) {
		for _, to := range []uint64{4e15 + 1, 1<<53 - 3} { // both ahead of the time
			key := x.key(fmt.Sprint(to, n))
			x.next(key, "mine", byCount, 0)
			x.raise(key, "mine", to, true)
			x.raise(key, "mine", to-1, false)
			x.numbered(key, "mine", byCount, to)
			x.remove(key, "mine")
			x.numbered(key, "mine", n, to+1)
			x.remove(key, "mine")
			x.numbered(key, "mine", byCount, to+2)
		}
	})},
	{"RaiseFence to 2^53 or more is refused and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "mine", byCount, 1)
		for _, to := range []uint64{1 << 53, 1<<64 - 1} {
			landed, err := x.fenced.RaiseFence(x.Context(), key, "mine", to)
			if err == nil || landed {
				x.Fatalf("RaiseFence to %d = %v, %v; want an error", to, landed, err)
			}
			x.wantPermanent("RaiseFence", err)
			x.numbered(key, "mine", byCount, 1)
		}
	}},
	{"RaiseFence with another value does not land and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "token-42", byCount, 1)
		for _, near := range []string{"token-4", "oken-42", "token-421", "TOKEN-42", "token-42\n", "*", ""} {
			x.raise(key, near, 1, false)
			x.raise(key, near, 1000, false)
		}
		x.numbered(key, "token-42", byCount, 1)
		x.remove(key, "token-42")
		x.numbered(key, "theirs", byCount, 2)
	}},
	{"RaiseFence after a release does not land", func(x *fixture) {
		key := x.key("k")
		x.raise(key, "mine", 1000, false) // before anybody had it
		x.numbered(key, "mine", byCount, 1)
		x.remove(key, "mine")
		x.raise(key, "mine", 1, false)
		x.raise(key, "mine", 1000, false)
		x.raise(key, "", 1000, false)
		x.wantNothing(key)
		x.numbered(key, "theirs", byCount, 2)
		x.raise(key, "mine", 1000, false)
		x.numbered(key, "theirs", byCount, 2)
	}},
	{"RaiseFence after an expiry does not land", func(x *fixture) {
		key := x.key("k")
		last := x.expired(key, byCount)
		x.raise(key, "expired", 1000, false)
		x.wantNothing(key)
		x.numbered(key, "theirs", byCount, last+1)
	}},
	{"RaiseFence leaves the value and its expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.raise(key, "mine", 7, true)
		x.wantValue(key, "mine", l)
	}},
	{"RaiseFence of a value of another type is an error that matches ErrWrongType", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		for _, value := range []string{"mine", ""} {
			landed, err := x.fenced.RaiseFence(x.Context(), key, value, 7)
			if landed || !errors.Is(err, backends.ErrWrongType) {
				x.Fatalf("RaiseFence = %v, %v; want an error that matches ErrWrongType", landed, err)
			}
			x.wantPermanent("RaiseFence", err)
		}
		x.wantForever(key, "")
	}},
	{"RaiseFence with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "mine", byCount, 1)
		x.done("RaiseFence", func(ctx context.Context) error {
			_, err := x.fenced.RaiseFence(ctx, key, "mine", 7)
			return err
		})
		x.numbered(key, "mine", byCount, 1)
	}},
}
