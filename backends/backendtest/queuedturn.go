package backendtest

import (
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var turnSentences = []sentence{
	{"DeleteIf wakes whoever has waited longest, and reserves the key for him", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			x.wantTurn(all[0])
			if !x.refusedToAll(key, reserved, all[1], all[2]) {
				return false
			}
			ok := x.ask(all[0], false).OK
			if !x.lasts(reserved) {
				return false
			}
			if !ok {
				x.Fatalf("a key that is reserved for a waiter is refused to him")
			}
			return true
		})
	}},
	{"while a key is reserved it is refused to all others, with no more Left than the Reservation", func(x *fixture) {
		x.inTime("all are refused", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			return x.refusedToAll(key, reserved, all[1], all[2], x.comes(key))
		})
	}},
	{"whoever's turn it is has the key for the ttl that he asks for", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			reserved := x.pass(key, "before")
			x.wantTurn(all[0])
			l := x.take(all[0])
			x.wantValue(key, all[0].value(), l)
			x.stand(all[1], 1)
			x.wantValue(key, all[0].value(), l)
			x.extend(key, all[0].value(), 2*x.long)
			return x.lasts(reserved)
		})
	}},
	{"a reservation that is not taken ends, not before its time, and then the key is free", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		x.line(key, 1)
		reserved := x.pass(key, "before")
		x.eventually("the key is free", reserved, func() bool {
			res, err := x.store.SetNX(x.Context(), key, "mine", x.long)
			if err != nil || res.OK && x.lasts(reserved) {
				x.Fatalf("SetNX = %+v, %v; %v before the end of a reservation", res, err, time.Until(reserved.earliest))
			}
			return res.OK
		})
	}},
	{"the next in line is woken when a reservation was not taken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.wantALook(all[1], x.pass(key, "before"))
		x.askUntilGranted(all[1], true)
	}},
	{"whoever does not take his turn has lost his place", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.wantALook(all[1], x.pass(key, "before"))
		x.askUntilGranted(all[1], true)
		x.stand(all[2], 1)
		x.stand(all[0], 2)
	}},
	{"a repeated SetNXQueued of the same value is granted, whoever waits", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		for range 2 {
			x.wantValue(key, all[0].value(), x.take(all[0]))
			if res := x.ask(all[0], true); res != (backends.Result{OK: true}) {
				x.Fatalf("SetNXQueued again, in order, = %+v; want it granted", res)
			}
		}
		x.stand(all[1], 1)
	}},
}

// wantALook waits until w is told something after the end of a reservation.
func (x *fixture) wantALook(w *waiter, reserved life) {
	x.Helper()
	for told := false; !told; told = !time.Now().Before(reserved.earliest) {
		x.wantTurn(w)
	}
}

var orderSentences = []sentence{
	{"without an order a free key is granted to whoever asks, whoever waits", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.outside.Delete(key)
		x.wantValue(key, "mine", x.grant(key, "mine", x.long))
		x.outside.Delete(key)
		if res := x.askFor(key, "", false, "mine"); res != (backends.Result{OK: true}) {
			x.Fatalf("SetNXQueued of a free key = %+v; want it granted", res)
		}
		x.outside.Delete(key)
		x.take(all[2])
		x.stand(all[0], 1)
	}},
	{"in order, a free key with a queue is refused to others and reserved for the first, who is woken", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			x.outside.Delete(key)
			began := time.Now()
			res := x.askFor(key, "", true, "mine")
			ended := time.Now()
			reserved := life{began.Add(backends.Reservation), ended.Add(backends.Reservation)}
			if res.OK || res.Position != 0 || res.Foreign {
				x.Fatalf("SetNXQueued of a free key, in order, = %+v; want it refused", res)
			}
			if !x.NoLeft {
				x.within(reserved, "SetNXQueued", res.Left, began, ended)
			}
			x.wantTurn(all[0])
			if !x.refusedToAll(key, reserved, all[1]) {
				return false
			}
			x.take(all[0])
			return x.lasts(reserved)
		})
	}},
	{"in order, another waiter who asks for a free key keeps his place", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.outside.Delete(key)
		if res := x.ask(all[2], true); res.OK || res.Position != 2 { // the first has his turn
			x.Fatalf("SetNXQueued of a free key, in order, for the third = %+v; want it refused, and place 2", res)
		}
	}},
	{"in order, a free key is granted to the first of its queue", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		if res := x.ask(all[0], true); res != (backends.Result{OK: true}) {
			x.Fatalf("SetNXQueued of a free key, in order, for the first = %+v; want it granted", res)
		}
		x.stand(all[1], 1)
	}},
	{"in order, a key whose reservation was not taken is reserved for the next", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			lapsed := x.pass(key, "before")
			x.eventually("the reservation ends", lapsed, func() bool {
				_, _, ok := x.outside.Get(key)
				return !ok
			})
			reserved := life{earliest: time.Now().Add(backends.Reservation)}
			if res := x.askFor(key, "", true, "mine"); res.OK {
				x.Fatalf("SetNXQueued of a free key, in order, = %+v; want it refused", res)
			}
			ok := x.ask(all[1], true).OK
			if !x.lasts(reserved) {
				return false
			}
			if !ok {
				x.Fatalf("the key is refused to the second, when the first did not take his turn")
			}
			return true
		})
	}},
}
