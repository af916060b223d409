package backendtest

import (
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// slotted is an Admission of n holds with slots.
func slotted(n int) backends.Admission { return backends.Admission{Limit: n, Slots: true} }

var slotSentences = []sentence{
	{"with Slots, each hold gets the lowest number from 0 on that no other hold has", func(x *fixture) {
		key := x.key("k")
		for i := range 4 {
			x.slot(key, fmt.Sprint("hold ", i), slotted(5), i)
		}
		x.leave(key, "hold 2")
		x.leave(key, "hold 0")
		x.slot(key, "next", slotted(5), 0)
		x.slot(key, "the one after", slotted(5), 2)
		x.slot(key, "last", slotted(5), 4)
	}},
	{"a hold keeps its number when it enters again or is renewed", func(x *fixture) {
		key := x.key("k")
		x.slot(key, "first", slotted(3), 0)
		x.slot(key, "second", slotted(3), 1)
		x.leave(key, "first")
		for range 3 {
			x.renew(key, "second", 2*x.long)
			x.slot(key, "second", slotted(3), 1)
		}
		x.slot(key, "third", slotted(3), 0)
	}},
	{"the number of a hold that has ended by itself is given again", func(x *fixture) {
		key := x.key("k")
		ends := x.admit(key, "first", 20*time.Millisecond, slotted(2), 1, 1)
		x.slot(key, "second", slotted(3), -1) // 1, unless the machine was slow
		x.eventually("the first has ended", ends, func() bool {
			res, err := x.shared.Enter(x.Context(), key, "second", x.long, slotted(3))
			return err == nil && res.Holds == 1
		})
		res, err := x.shared.Enter(x.Context(), key, "second", x.long, slotted(3))
		if err != nil || !res.OK {
			x.Fatalf("Enter = %+v, %v", res, err)
		}
		x.slot(key, "third", slotted(3), 1-res.Slot)
	}},
	{"a hold without Slots has no number, and keeps none from others", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "without", x.long, backends.Admission{Limit: 3}, 1, 2)
		x.slot(key, "with", slotted(3), 0)
		x.slot(key, "another", slotted(3), 1)
	}},
	{"a lower limit gives no number that a hold has", func(x *fixture) {
		key := x.key("k")
		for i := range 4 {
			x.slot(key, fmt.Sprint("hold ", i), slotted(4), i)
		}
		for i := range 3 {
			x.leave(key, fmt.Sprint("hold ", i))
		}
		x.slot(key, "next", slotted(2), 0)
		x.admitNot(key, "one more", slotted(2), 2)
	}},
	{"slots have a limit: at least 1, at most MaxSlots", func(x *fixture) {
		key := x.key("k")
		for _, limit := range []int{0, -1, backends.MaxSlots + 1} {
			_, err := x.shared.Enter(x.Context(), key, "one", x.long, slotted(limit))
			x.wantPermanent(fmt.Sprintf("Enter with slots and limit %d", limit), err)
		}
		x.slot(key, "one", slotted(backends.MaxSlots), 0)
	}},
}

// slot calls Enter, which must be granted with that slot; -1: any.
func (x *fixture) slot(key, token string, a backends.Admission, slot int) {
	x.Helper()
	res, err := x.shared.Enter(x.Context(), key, token, x.long, a)
	if err != nil || !res.OK || res.Slot != slot && slot >= 0 {
		x.Fatalf("Enter(%.60q, %+v) = %+v, %v; want slot %d", token, a, res, err, slot)
	}
}
