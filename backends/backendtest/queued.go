package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofQueued = suite[backends.QueuedStore, Outside]{
	sentences: func(h QueuedHarness) []sentence {
		all := slices.Concat(positionSentences, turnSentences, lateSentences, orderSentences, queuedGoneSentences,
			queuedInputSentences, queuedConcurrencySentences)
		if h.Bubble {
			all = append(all, lateForLong)
		}
		return all
	},
	give: func(x *fixture, store backends.QueuedStore, _ Outside) {
		x.store, x.queued, x.queue = store, store, store
	},
}

var positionSentences = []sentence{
	{"a waiter that finds the key held takes the last position, and keeps it at its next attempt", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "before", x.long)
		all := x.line(key, 3)
		for range 2 {
			for _, i := range []int{1, 0, 2} {
				x.wantPosition(all[i], i+1)
			}
		}
		x.wantValue(key, "before", l)
	}},
	{"ExpireIf leaves the queue alone", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.extend(key, "before", x.long)
		for i, w := range slices.Backward(all) {
			x.wantPosition(w, i+1)
		}
	}},
	{"an attempt without a Waiter takes no position", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		for _, inOrder := range []bool{false, true} {
			if res := x.askFor(key, "", inOrder, "mine"); res.OK || res.Position != 0 {
				x.Fatalf("SetNXQueued without a waiter = %+v; want it held, and no position", res)
			}
		}
		x.line(key, 1)
	}},
	{"a waiter without a WatchQueued gets no position", func(x *fixture) {
		key, other := x.key("k"), x.key("other")
		x.grant(key, "before", x.long)
		x.grant(other, "before", x.long)
		ended := x.newWaiter(key)
		ended.leave()
		x.eventually("the store notices the end of a watch", life{latest: time.Now()}, func() bool {
			return x.ask(ended, false).Position == 0
		})
		for what, waiter := range map[string]string{
			"a waiter without a WatchQueued":             "stranger-" + x.id,
			"a waiter whose WatchQueued has ended":       ended.name,
			"a waiter with a WatchQueued of another key": x.newWaiter(other).name,
		} {
			if res := x.askFor(key, waiter, false, "mine"); res.OK || res.Position != 0 {
				x.Fatalf("SetNXQueued for %s = %+v; want it held, and no position", what, res)
			}
		}
		w := x.newWaiter(key)
		x.eventually("the position of the ended watch is free", life{latest: time.Now()}, func() bool {
			return x.ask(w, false).Position == 1
		})
	}},
	{"a waiter that is granted the key has no position any more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.outside.Delete(key)
		x.take(all[1])
		x.wantPosition(all[0], 1)
		x.wantPosition(all[2], 2)
		if res := x.askFor(key, all[1].name, false, "another value"); res.OK || res.Position != 3 {
			x.Fatalf("SetNXQueued for the holder with another value = %+v; want it held, and position 3", res)
		}
	}},
	{"every key has a queue of its own", func(x *fixture) {
		keys := x.oddKeys()
		all := make([]*waiter, len(keys))
		for i, key := range keys {
			x.grant(key, "before", x.long)
			all[i] = x.line(key, 1)[0]
		}
		for i, key := range keys {
			x.remove(key, "before")
			x.wantWoken(all[i])
			x.take(all[i])
			x.remove(key, all[i].value())
			x.wantNothing(key)
		}
	}},
	{"a position outlives the value that the waiter found", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		x.grant(key, "mine", x.long)
		x.wantPosition(all[1], 2)
		x.wantPosition(all[0], 1)
	}},
	{"a waiter takes a position behind a value without expiry too, which is Foreign", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		res := x.ask(x.newWaiter(key), false)
		if want := (backends.Result{Foreign: true, Position: 1}); res != want {
			x.Fatalf("SetNXQueued = %+v; want %+v", res, want)
		}
		x.wantForever(key, "theirs")
	}},
}

var turnSentences = []sentence{
	{"DeleteIf wakes the head of the queue, and reserves the key for it", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			x.wantWoken(all[0])
			if !x.heldForOthers(key, reserved, all[1], all[2]) {
				return false
			}
			ok := x.ask(all[0], false).OK
			if !x.lasts(reserved) {
				return false
			}
			if !ok {
				x.Fatalf("a key that is reserved for a waiter is held for it")
			}
			return true
		})
	}},
	{"a reserved key is held for all other callers, and Left is at most Reservation if the waiter is near", func(x *fixture) {
		x.inTime("the key is held for all", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			return x.heldForOthers(key, reserved, all[1], all[2], x.newWaiter(key))
		})
	}},
	{"the head of the queue takes its reservation for the ttl of its attempt", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			reserved := x.pass(key, "before")
			x.wantWoken(all[0])
			l := x.take(all[0])
			x.wantValue(key, all[0].value(), l)
			x.wantPosition(all[1], 1)
			x.wantValue(key, all[0].value(), l)
			x.extend(key, all[0].value(), 2*x.long)
			return x.lasts(reserved)
		})
	}},
	{"a reservation that is not taken ends when Reservation is over, not before, and the key is free", func(x *fixture) {
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
	{"the next waiter is woken when a reservation was not taken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.wantWokenAfter(all[1], x.pass(key, "before"))
		x.askUntilGranted(all[1], true)
	}},
	{"a second SetNXQueued of the same value is granted, even if others wait", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		for range 2 {
			x.wantValue(key, all[0].value(), x.take(all[0]))
			if res := x.ask(all[0], true); res != (backends.Result{OK: true}) {
				x.Fatalf("second SetNXQueued with InOrder = %+v; want it granted", res)
			}
		}
		x.wantPosition(all[1], 1)
	}},
}

// lateSentences are about waiters that do not take their reservation in time.
var lateSentences = []sentence{
	{"a late waiter keeps its position, and nobody waits for it until its next attempt", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.wantWokenAfter(all[1], x.pass(key, "before"))
		x.askUntilGranted(all[1], true)
		x.wantPosition(all[2], 1) // the late one does not count
		x.wantPosition(all[0], 1)
		x.wantPosition(all[2], 2)
	}},
	{"an attempt of a late waiter makes it the head again, also if the key is held", func(x *fixture) {
		x.inTime("the late waiter is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			x.wantWokenAfter(all[1], x.pass(key, "before"))
			x.askUntilGranted(all[1], true)
			x.wantPosition(all[0], 1)
			reserved := x.pass(key, all[1].value())
			if !x.heldForOthers(key, reserved, all[2]) {
				return false
			}
			return x.ask(all[0], true).OK && x.lasts(reserved)
		})
	}},
	{"if the next reservation is not taken either, the first waiter that is not late is woken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 4)
		x.wantWokenAfter(all[1], x.pass(key, "before"))
		x.askUntilGranted(all[1], true)
		x.wantWokenAfter(all[3], x.pass(key, all[1].value())) // and not the late one in its place
		x.askUntilGranted(all[3], true)
	}},
	{"a waiter behind many that make no attempt has the key after a reservation for each, and another the next time at once", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		dead := x.manyDead()
		x.line(key, dead)
		w := x.newWaiter(key)
		x.wantPosition(w, dead+1)
		reserved := x.pass(key, "before")
		for asked := 1; !x.ask(w, true).OK; asked++ {
			if asked > dead {
				x.Fatalf("the waiter was refused %d times behind %d that make no attempt", asked, dead)
			}
			x.lapse(key, reserved)
			reserved = life{latest: time.Now().Add(backends.Reservation)} // the next one has it from the next attempt on
		}
		next := x.newWaiter(key)
		x.wantPosition(next, 1)
		reserved = x.pass(key, w.value())
		x.wantWoken(next)
		if res := x.ask(next, false); !res.OK && (x.Bubble || x.lasts(reserved)) {
			x.Errorf("SetNXQueued of the waiter that was woken = %+v; want it granted", res)
		}
	}},
	{"with InOrder, a late waiter is granted a free key before the waiters behind it", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.lapse(key, x.pass(key, "before"))
		if res := x.ask(all[0], true); res != (backends.Result{OK: true}) {
			x.Fatalf("SetNXQueued of a free key with InOrder for a late waiter = %+v; want it granted", res)
		}
		x.wantPosition(all[2], 2)
	}},
	{"with InOrder, a free key whose waiters are all late is granted to any caller", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 1)
		x.lapse(key, x.pass(key, "before"))
		if res := x.askFor(key, "", true, "mine"); res != (backends.Result{OK: true}) {
			x.Fatalf("SetNXQueued of a free key with InOrder = %+v; want it granted", res)
		}
		x.wantPosition(x.newWaiter(key), 1)
		x.wantPosition(all[0], 1)
	}},
	{"a release wakes the waiters if all of them are late, and the key is free", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		reserved := x.pass(key, "before")
		for _, w := range all[:2] {
			x.wantWoken(w)
			x.lapse(key, reserved)
			reserved = life{latest: time.Now().Add(backends.Reservation)}
			x.askFor(key, "", true, "mine") // so that the next one has a reservation
		}
		x.lapse(key, reserved)
		x.askUntilGranted(all[2], true)
		x.remove(key, all[2].value())
		x.wantNothing(key)
		x.wantWoken(all[0])
		x.wantWoken(all[1])
	}},
	{"a reservation lasts for three round trips of its waiter, at most MaxReservation and its ttl", func(x *fixture) {
		for _, c := range []struct{ roundTrip, ttl, most time.Duration }{
			{250 * time.Millisecond, x.long, 750 * time.Millisecond},
			{time.Hour, x.long, backends.MaxReservation},
			{time.Hour, 500 * time.Millisecond, 500 * time.Millisecond},
			{time.Hour, time.Millisecond, backends.Reservation},
			{time.Nanosecond, x.long, backends.Reservation},
		} {
			x.inTime("there is a reservation", func(key string) bool {
				key += fmt.Sprint(c.roundTrip, c.ttl)
				x.grant(key, "before", x.long)
				w := x.newWaiter(key)
				turn := backends.Turn{Waiter: w.name, RoundTrip: c.roundTrip}
				if res, err := x.queued.SetNXQueued(x.Context(), key, w.value(), c.ttl, turn); err != nil || res.Position != 1 {
					x.Fatalf("SetNXQueued = %+v, %v; want it held, and position 1", res, err)
				}
				began := time.Now()
				x.remove(key, "before")
				_, left, held := x.outside.Get(key)
				ended := time.Now()
				l := life{began.Add(c.most), ended.Add(c.most)}
				if !x.lasts(l) {
					return false
				}
				if !held {
					x.Fatalf("a round trip of %v: there is no reservation", c.roundTrip)
				}
				x.within(l, fmt.Sprintf("a reservation after a round trip of %v and a ttl of %v", c.roundTrip, c.ttl), left, began, ended)
				return true
			})
		}
	}},
}

// manyDead is how many waiters make no attempt: more than a store looks at in one call, if it does not look
// at all.
func (x *fixture) manyDead() int {
	if x.Bubble {
		return 40
	}
	return 12 // each takes a reservation
}

// lateForLong is for fake time.
var lateForLong = sentence{"a late waiter that makes no attempt for LateLimit loses its position", func(x *fixture) {
	key := x.key("k")
	x.grant(key, "before", x.long)
	all := x.line(key, 2)
	x.lapse(key, x.pass(key, "before"))
	x.askUntilGranted(all[1], true)
	for late := time.Now(); time.Since(late) < backends.LateLimit+2*time.Second; {
		time.Sleep(x.long / 2)
		x.extend(key, all[1].value(), x.long)
	}
	third := x.newWaiter(key)
	x.wantPosition(third, 1)
	x.pass(key, all[1].value())
	x.take(third)
	x.wantPosition(x.newWaiter(key), 1)
	x.wantPosition(all[0], 2)
}}

// lapse waits for the end of a reservation.
func (x *fixture) lapse(key string, reserved life) {
	x.Helper()
	x.eventually("the reservation ends", reserved, func() bool {
		_, _, held := x.outside.Get(key)
		return !held
	})
}

// wantWokenAfter waits until w is woken after the end of a reservation.
func (x *fixture) wantWokenAfter(w *waiter, reserved life) {
	x.Helper()
	for after := false; !after; after = !time.Now().Before(reserved.earliest) {
		x.wantWoken(w)
	}
}

var orderSentences = []sentence{
	{"without InOrder any caller is granted a free key, even if others wait", func(x *fixture) {
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
		x.wantPosition(all[0], 1)
	}},
	{"with InOrder, a free key is reserved for the head of its queue, which is woken, and held for others", func(x *fixture) {
		x.inTime("the first is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			x.outside.Delete(key)
			began := time.Now()
			res := x.askFor(key, "", true, "mine")
			ended := time.Now()
			reserved := life{began.Add(backends.Reservation), ended.Add(backends.Reservation)}
			if res.OK || res.Position != 0 || res.Foreign {
				x.Fatalf("SetNXQueued of a free key with InOrder = %+v; want it held", res)
			}
			if !x.NoLeft {
				x.within(reserved, "SetNXQueued", res.Left, began, ended)
			}
			x.wantWoken(all[0])
			if !x.heldForOthers(key, reserved, all[1]) {
				return false
			}
			x.take(all[0])
			return x.lasts(reserved)
		})
	}},
	{"with InOrder, a waiter that is not the head keeps its position when it asks for a free key", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.outside.Delete(key)
		if res := x.ask(all[2], true); res.OK || res.Position != 2 { // the first has the reservation
			x.Fatalf("SetNXQueued of a free key with InOrder for the third waiter = %+v; want it held, and position 2", res)
		}
	}},
	{"with InOrder, the head of the queue is granted a free key", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		if res := x.ask(all[0], true); res != (backends.Result{OK: true}) {
			x.Fatalf("SetNXQueued of a free key with InOrder for the head = %+v; want it granted", res)
		}
		x.wantPosition(all[1], 1)
	}},
	{"with InOrder, a key whose reservation was not taken is reserved for the next waiter", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 2)
			x.lapse(key, x.pass(key, "before"))
			reserved := life{earliest: time.Now().Add(backends.Reservation)}
			if res := x.askFor(key, "", true, "mine"); res.OK {
				x.Fatalf("SetNXQueued of a free key with InOrder = %+v; want it held", res)
			}
			ok := x.ask(all[1], true).OK
			if !x.lasts(reserved) {
				return false
			}
			if !ok {
				x.Fatalf("the key is held for the second waiter, although the first did not take its reservation")
			}
			return true
		})
	}},
}

var queuedGoneSentences = []sentence{
	{"a waiter whose watch ends leaves the queue, and is not woken any more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		all[0].leave()
		x.eventually("the position is free", life{latest: time.Now()}, func() bool { return x.ask(all[2], false).Position == 2 })
		before := all[0].count.Load()
		x.pass(key, "before")
		x.wantWoken(all[1])
		x.askUntilGranted(all[1], true)
		if n := all[0].count.Load() - before; n != 0 {
			x.Errorf("a waiter that has left was woken %d times", n)
		}
	}},
	{"the end of a watch after the grant to its waiter leaves the value alone", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.pass(key, "before")
		x.wantWoken(all[0])
		l := x.take(all[0])
		leaveQueue(x.Bubble, all[0].leave)
		all[1].leave()
		x.eventually("the store notices the ends", life{latest: time.Now()}, func() bool {
			res := x.ask(all[2], false)
			if res.OK {
				x.Fatalf("%s was granted beside the value of the waiter whose watch ended", key)
			}
			return res.Position == 1
		})
		x.wantValue(key, all[0].value(), l)
	}},
	{"a release skips a waiter whose watch has ended", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			all[0].leave()
			reserved := x.pass(key, "before")
			x.wantWoken(all[1])
			return x.ask(all[1], true).OK && x.lasts(reserved)
		})
	}},
	{"when the watch of a waiter ends, its reservation goes to the next waiter at once", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			x.wantWoken(all[0])
			all[0].leave()
			for {
				switch granted := x.ask(all[1], true).OK; {
				case !x.lasts(reserved):
					return false
				case granted:
					return true
				}
				x.wantWoken(all[1])
			}
		})
	}},
	{"when the watch of the last waiter ends, its reservation ends at once, and watchers are woken", func(x *fixture) {
		x.inTime("the key is free", func(key string) bool {
			x.grant(key, "before", x.long)
			only, others := x.line(key, 1)[0], x.watch(x.Context(), key)
			reserved := x.pass(key, "before")
			x.wantWoken(only)
			only.leave()
			x.eventually("the key is free", reserved, func() bool {
				_, _, held := x.outside.Get(key)
				return !held
			})
			if !x.lasts(reserved) {
				return false
			}
			x.wantWake(others)
			return true
		})
	}},
	{"when the head of the queue leaves, the next waiter is woken: it is the head now", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		all[0].leave()
		x.wantWoken(all[1])
		if res := x.ask(all[1], false); res.OK || res.Position != 1 {
			x.Errorf("SetNXQueued of the next waiter = %+v; want it held, at position 1", res)
		}
	}},
	{"when a reservation was not taken, a waiter that has become the next one is woken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		reserved := x.pass(key, "before")
		all[1].leave() // it may have been woken to look
		x.wantWokenAfter(all[2], reserved)
		x.askUntilGranted(all[2], true)
	}},
}

var queuedInputSentences = []sentence{
	{"a Waiter with an @ is a permanent error, and nothing is stored", func(x *fixture) {
		for _, waiter := range []string{"@", "an@odd", "odd@", "@odd"} {
			key := x.key("k")
			for _, inOrder := range []bool{false, true} {
				res, err := x.queued.SetNXQueued(x.Context(), key, "mine", x.long, backends.Turn{Waiter: waiter, InOrder: inOrder})
				if res.OK || res.Position != 0 {
					x.Fatalf("SetNXQueued for %q = %+v", waiter, res)
				}
				x.wantInvalid("SetNXQueued for "+waiter, err)
			}
			x.wantNothing(key)
			x.wantInvalid("WatchQueued for "+waiter, x.queued.WatchQueued(x.Context(), key, waiter, func() {}))
		}
	}},
	{"WatchQueued without a waiter is a permanent error", func(x *fixture) {
		x.wantInvalid("WatchQueued without a waiter", x.queued.WatchQueued(x.Context(), x.key("k"), "", func() {}))
	}},
	{"WatchQueued with a ctx that is done returns the error of the ctx", func(x *fixture) {
		key := x.key("k")
		x.done("WatchQueued", func(ctx context.Context) error {
			return x.queued.WatchQueued(ctx, key, "late-"+x.id, func() {})
		})
	}},
}

var queuedConcurrencySentences = []sentence{
	{"waiters that ask at the same time each get a position of their own", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := make([]*waiter, callers)
		for i := range all {
			all[i] = x.newWaiter(key)
		}
		positions := make([]int, callers)
		together(callers, func(i int) { positions[i] = x.ask(all[i], i%2 == 0).Position })
		sorted := slices.Sorted(slices.Values(positions))
		for i, position := range sorted {
			if position != i+1 {
				x.Fatalf("the positions are %v", positions)
			}
		}
		for i, w := range all {
			x.wantPosition(w, positions[i])
		}
	}},
	{"waiters are granted the key one after the other, in the order of their positions", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var order []int
		late := false // a waiter did not ask before its reservation ended
		var holders atomic.Int64
		var mu sync.Mutex
		passed := time.Now()
		var wg sync.WaitGroup
		for i, w := range all {
			wg.Go(func() {
				x.wantWoken(w)
				for !x.ask(w, true).OK {
					x.wantWoken(w)
				}
				if n := holders.Add(1); n != 1 {
					x.Errorf("%d waiters have the key at the same time", n)
				}
				mu.Lock()
				late = late || !x.lasts(life{earliest: passed.Add(backends.Reservation)})
				order = append(order, i)
				passed = time.Now()
				mu.Unlock()
				holders.Add(-1)
				x.remove(key, w.value())
			})
		}
		mu.Lock()
		passed = time.Now()
		mu.Unlock()
		x.remove(key, "before")
		wg.Wait()
		if len(order) != callers || !late && !slices.IsSorted(order) {
			x.Fatalf("the waiters had the key in the order %v", order)
		}
		x.wantNothing(key)
	}},
	{"waiters that leave the queue do not block the others", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i, w := range all {
			wg.Go(func() {
				if i%2 == 0 {
					time.Sleep(time.Duration(i) * x.Resolution)
					w.leave()
					return
				}
				x.wantWoken(w)
				for !x.ask(w, i%4 == 1).OK {
					x.wantWoken(w)
				}
				granted.Add(1)
				time.Sleep(x.Resolution)
				x.remove(key, w.value())
			})
		}
		x.remove(key, "before")
		wg.Wait()
		if n := granted.Load(); n != callers/2 {
			x.Fatalf("%d of %d waiters were granted the key", n, callers/2)
		}
	}},
}

// A waiter has a WatchQueued.
type waiter struct {
	*wakes
	key, name string
	leave     context.CancelFunc
}

// newWaiter watches key for a new waiter, which has no position yet. It leaves the queue at the end
// of the sentence, if not before.
func (x *fixture) newWaiter(key string) *waiter {
	x.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
	w := &waiter{newWakes(), key, rand.Text(), cancel}
	x.Cleanup(func() { leaveQueue(x.Bubble, cancel) })
	if err := x.queue.WatchQueued(ctx, key, w.name, w.wake); err != nil {
		x.Fatalf("WatchQueued(%.60q): %v", key, err)
	}
	return w
}

// leaveQueue ends the watches of waiters. In a bubble it waits until the store has dealt with that,
// because the test may close the store next.
func leaveQueue(bubble bool, leave context.CancelFunc) {
	leave()
	if bubble {
		synctest.Wait()
	}
}

// line makes n waiters for key, which is held, with positions in their order.
func (x *fixture) line(key string, n int) []*waiter {
	x.Helper()
	all := make([]*waiter, n)
	for i := range all {
		all[i] = x.newWaiter(key)
		x.wantPosition(all[i], i+1)
	}
	return all
}

// wantPosition makes an attempt for a key that is held, and checks the position.
func (x *fixture) wantPosition(w *waiter, position int) {
	x.Helper()
	if res := x.ask(w, false); res.OK || res.Position != position {
		x.Fatalf("SetNXQueued(%.60q) for a waiter = %+v; want it held, and position %d", w.key, res, position)
	}
}

// ask calls SetNXQueued for w, with the value of w.
func (x *fixture) ask(w *waiter, inOrder bool) backends.Result {
	x.Helper()
	return x.askFor(w.key, w.name, inOrder, w.value())
}

// askFor calls SetNXQueued for a waiter; empty: none.
func (x *fixture) askFor(key, waiter string, inOrder bool, value string) backends.Result {
	x.Helper()
	res, err := x.queued.SetNXQueued(x.Context(), key, value, x.long, backends.Turn{Waiter: waiter, InOrder: inOrder})
	if err != nil {
		x.Fatalf("SetNXQueued(%.60q, %.60q): %v", key, value, err)
	}
	return res
}

func (w *waiter) value() string { return "of " + w.name }

// take calls SetNXQueued for w, which must be granted.
func (x *fixture) take(w *waiter) life {
	x.Helper()
	began := time.Now()
	if res := x.ask(w, false); !res.OK || res.Position != 0 {
		x.Fatalf("SetNXQueued(%.60q) for the head of the queue = %+v; want it granted", w.key, res)
	}
	return life{began.Add(x.long), time.Now().Add(x.long)}
}

// pass removes the value of a key with waiters, and returns when the reservation ends.
func (x *fixture) pass(key, value string) life {
	x.Helper()
	began := time.Now()
	x.remove(key, value)
	return life{began.Add(backends.Reservation), time.Now().Add(backends.Reservation)}
}

// lasts reports whether a reservation that ends at l was still there when the last call answered.
// An answer that came later proves nothing, since the machine was slow.
func (x *fixture) lasts(l life) bool { return time.Now().Before(l.earliest.Add(-x.tolerance())) }

// inTime repeats a scene, each time with a key of its own, until the scene was over before a
// reservation ended.
func (x *fixture) inTime(what string, scene func(key string) bool) {
	x.Helper()
	limit := time.Now().Add(6 * patience)
	for n := 0; !scene(x.key(fmt.Sprint("scene", n))); n++ {
		if time.Now().After(limit) {
			x.Fatalf("%s: not before the reservation ended, in %d attempts", what, n+1)
		}
	}
}

// wantWoken waits for a wake-up.
func (x *fixture) wantWoken(w *waiter) {
	x.Helper()
	select {
	case <-w.signal:
	case <-time.After(patience):
		x.Fatalf("a waiter was not woken within %v", patience)
	}
}

// askUntilGranted asks now, and after every wake-up.
func (x *fixture) askUntilGranted(w *waiter, inOrder bool) {
	x.Helper()
	for !x.ask(w, inOrder).OK {
		x.wantWoken(w)
	}
}

// heldForOthers checks that no call takes or changes a key that is reserved for another waiter. It
// returns false if the reservation ended before the calls were done.
func (x *fixture) heldForOthers(key string, l life, others ...*waiter) bool {
	x.Helper()
	type call struct {
		name string
		make func() (backends.Result, error)
	}
	calls := []call{
		{"SetNX", func() (backends.Result, error) { return x.store.SetNX(x.Context(), key, "mine", x.long) }},
		{"SetNXQueued without a waiter", func() (backends.Result, error) { return x.askFor(key, "", false, "mine"), nil }},
		{"SetNXQueued without a waiter, with InOrder", func() (backends.Result, error) { return x.askFor(key, "", true, "mine"), nil }},
	}
	for _, w := range others {
		calls = append(calls,
			call{"SetNXQueued for another", func() (backends.Result, error) { return x.ask(w, false), nil }},
			call{"SetNXQueued for another, with InOrder", func() (backends.Result, error) { return x.ask(w, true), nil }})
	}
	for _, value := range []string{"mine", "before", ""} {
		calls = append(calls,
			call{"ExpireIf", func() (backends.Result, error) {
				ok, err := x.store.ExpireIf(x.Context(), key, value, x.long)
				return backends.Result{OK: ok}, err
			}},
			call{"DeleteIf", func() (backends.Result, error) {
				ok, err := x.store.DeleteIf(x.Context(), key, value)
				return backends.Result{OK: ok}, err
			}})
	}
	for _, c := range calls {
		began := time.Now()
		res, err := c.make()
		ended := time.Now()
		if !x.lasts(l) {
			return false
		}
		if res.OK || res.Foreign || err != nil {
			x.Fatalf("%s of a key that is reserved = %+v, %v; want it held", c.name, res, err)
		}
		if isSet := c.name[0] == 'S'; isSet && !x.NoLeft {
			x.within(l, c.name, res.Left, began, ended)
			if res.Left > backends.Reservation {
				x.Errorf("%s: %v are left of a reservation of %v", c.name, res.Left, backends.Reservation)
			}
		}
	}
	return true
}

// wantInvalid checks the error of bad input.
func (x *fixture) wantInvalid(call string, err error) {
	x.Helper()
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		x.Fatalf("%s: error %v; want a permanent one", call, err)
	}
	x.wantPermanent(call, err)
}

// An asking is a way to call SetNXQueued.
type asking struct {
	says           string
	waits, inOrder bool
}

var askings = []asking{
	{"without a waiter", false, false},
	{"without a waiter, with InOrder", false, true},
	{"for a waiter", true, false},
	{"for a waiter, with InOrder", true, true},
}

// notForWaiters are sentences that do not run with waiters.
var notForWaiters = []string{
	// the waiter would be granted the key when it is deleted
	"a key may be any text, and SetNX, ExpireIf and DeleteIf treat it like any other key",
	"DeleteIf never removes another value that was stored during the call",
	"ExpireIf and a second SetNX never bring back a value that was removed during the call, nor overwrite the next",
	// there would be a thousand waiters for a value of another
	"a value may be any text, and no text has a special meaning",
}

// suite is the contract of a plain store, without the sentences that do not hold for waiters.
func (a asking) suite() suite[backends.Store, Outside] {
	c := ofStore
	c.sentences = func(h Harness) []sentence {
		return slices.DeleteFunc(ofStore.sentences(h), func(s sentence) bool {
			return a.waits && slices.Contains(notForWaiters, s.says)
		})
	}
	return c
}

// queued is the harness of a plain store whose SetNX is the SetNXQueued of the store of h.
func queued(h QueuedHarness, a asking) Harness {
	return Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		New: func(t *testing.T) (backends.Store, Outside) {
			store, outside := h.New(t)
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(func() { leaveQueue(h.Bubble, cancel) })
			return &queuedStore{QueuedStore: store, asking: a, t: t, watching: ctx, waiters: make(map[string]string)}, outside
		},
	}
}

// queuedStore has a waiter for each value under each key.
type queuedStore struct {
	backends.QueuedStore
	asking
	t        *testing.T
	watching context.Context
	mu       sync.Mutex
	waiters  map[string]string
}

func (s *queuedStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	turn := backends.Turn{InOrder: s.inOrder}
	if s.waits {
		var err error
		if turn.Waiter, err = s.waiter(key, value); err != nil {
			return backends.Result{}, err
		}
	}
	res, err := s.SetNXQueued(ctx, key, value, ttl, turn)
	if ((res.Position > 0) != (s.waits && !res.OK)) && err == nil {
		s.t.Errorf("SetNXQueued(%.60q, %.60q, %v, %+v) = %+v", key, value, ttl, turn, res)
	}
	res.Position = 0 // a plain store has none
	return res, err
}

func (s *queuedStore) waiter(key, value string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.waiters[key+"\x00"+value]
	if name != "" {
		return name, nil
	}
	name = rand.Text()
	s.waiters[key+"\x00"+value] = name
	return name, s.WatchQueued(s.watching, key, name, func() {})
}
