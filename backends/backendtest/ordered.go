package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofOrdered = suite[backends.OrderedStore, SharedOutside]{
	sentences: func(OrderedHarness) []sentence { return orderedSentences },
	give: func(x *fixture, store backends.OrderedStore, outside SharedOutside) {
		x.shared, x.store, x.queue, x.setShared = store, soleHolds{store}, store, outside.SetShared
	},
}

// Readers and writers, as package rwlock has them.
var (
	reads  = backends.Admission{Group: "read", Turn: backends.Turn{InOrder: true}}
	writes = backends.Admission{Group: "write", Limit: 1, Turn: backends.Turn{InOrder: true}}
)

var orderedSentences = []sentence{
	{"a waiter that is refused takes the last position, and keeps it at its next attempt", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, reads, writes, reads)
		for range 2 {
			for _, i := range []int{1, 0, 2} {
				if res := x.enterAs(all[i]); res.OK || res.Position != i+1 {
					x.Fatalf("Enter of waiter %d = %+v; want position %d", i+1, res, i+1)
				}
			}
		}
	}},
	{"Leave wakes the waiters from the head of the queue on that fit together, and no other", func(x *fixture) {
		x.inTime("three readers enter", func(key string) bool {
			x.admit(key, "before", x.long, writes, 1, 0)
			all := x.waiters(key, reads, reads, reads, writes, reads)
			reserved := x.leaveFor(key, "before")
			for _, e := range all[:3] {
				x.wantWoken(e.waiter)
			}
			var got []bool
			for _, e := range all {
				got = append(got, x.enterAs(e).OK)
			}
			if !x.lasts(reserved) {
				return false
			}
			if !slices.Equal(got, []bool{true, true, true, false, false}) {
				x.Fatalf("three readers, a writer and a reader: %v; want the first three granted", got)
			}
			return true
		})
	}},
	{"the Leave of the last of two readers wakes a writer at the head", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "one", x.long, reads, 1, -1)
		x.admit(key, "two", x.long, reads, 2, -1)
		writer := x.waiters(key, writes)[0]
		x.leave(key, "one")
		if res := x.enterAs(writer); res.OK || res.Holds != 1 {
			x.Fatalf("Enter of a writer beside a reader = %+v; want it held by 1", res)
		}
		x.leave(key, "two")
		x.wantWoken(writer.waiter)
		if res := x.enterAs(writer); !res.OK {
			x.Fatalf("Enter of the writer that was woken = %+v; want it granted", res)
		}
	}},
	{"a reservation keeps others out, and is in no Holds or Room", func(x *fixture) {
		x.inTime("another is refused", func(key string) bool {
			two := backends.Admission{Limit: 2}
			x.admit(key, "one", x.long, two, 1, 1)
			x.admit(key, "before", x.long, two, 2, 0)
			all := x.waiters(key, two, two)
			reserved := x.leaveFor(key, "before")
			x.wantWoken(all[0].waiter)
			res, err := x.shared.Enter(x.Context(), key, "mine", x.long, two)
			other := x.enterAs(all[1])
			got := x.enterAs(all[0])
			if !x.lasts(reserved) {
				return false
			}
			if err != nil || res.OK || res.Holds != 1 || other.OK {
				x.Fatalf("Enter beside a reservation = %+v, %v, and of another waiter %+v; want both held by 1", res, err, other)
			}
			if !got.OK || got.Holds != 2 || got.Room != 0 {
				x.Fatalf("Enter of the waiter = %+v; want it granted, with Holds 2 and Room 0", got)
			}
			return true
		})
	}},
	{"Renew leaves the queue and the reservations alone", func(x *fixture) {
		x.inTime("another is refused", func(key string) bool {
			two := backends.Admission{Limit: 2}
			x.admit(key, "one", x.long, two, 1, 1)
			x.admit(key, "before", x.long, two, 2, 0)
			all := x.waiters(key, two, two, two)
			x.renew(key, "one", x.long)
			for i, e := range slices.Backward(all) {
				if res := x.enterAs(e); res.OK || res.Position != i+1 {
					x.Fatalf("Enter of waiter %d after a Renew = %+v; want position %d", i+1, res, i+1)
				}
			}
			reserved := x.leaveFor(key, "before")
			x.wantWoken(all[0].waiter)
			x.renew(key, "one", x.long)
			res := x.enterAs(all[1])
			if !x.lasts(reserved) {
				return false
			}
			if res.OK {
				x.Fatalf("Enter beside a reservation after a Renew = %+v; want it held", res)
			}
			return true
		})
	}},
	{"a waiter with a reservation is refused if as many hold as its limit by then", func(x *fixture) {
		x.inTime("the waiter is refused", func(key string) bool {
			one, two := backends.Admission{Limit: 1}, backends.Admission{Limit: 2}
			x.admit(key, "before", x.long, one, 1, 0)
			all := x.waiters(key, one)
			reserved := x.leaveFor(key, "before")
			x.wantWoken(all[0].waiter)
			res, err := x.shared.Enter(x.Context(), key, "mine", x.long, two)
			got := x.enterAs(all[0])
			if !x.lasts(reserved) {
				return false
			}
			if err != nil || !res.OK {
				x.Fatalf("Enter with a limit of 2 beside a reservation = %+v, %v; want it granted", res, err)
			}
			if got.OK || got.Holds != 1 || got.Position != 1 {
				x.Fatalf("Enter of the waiter with a limit of 1 beside a hold = %+v; want it held by 1, at position 1", got)
			}
			return true
		})
	}},
	{"a hold that enters by a reservation lives for its ttl, also after the end of its watch", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, writes, writes, writes)
		x.leave(key, "before")
		x.wantWoken(all[0].waiter)
		began := time.Now()
		if res := x.enterAs(all[0]); !res.OK {
			x.Fatalf("Enter of the waiter that was woken = %+v; want it granted", res)
		}
		l := life{began.Add(x.long), time.Now().Add(x.long)}
		leaveQueue(x.Bubble, all[0].leave)
		all[1].leave()
		x.eventually("the store notices the ends", life{latest: time.Now()}, func() bool {
			began := time.Now()
			res := x.enterAs(all[2])
			if res.OK || res.Holds != 1 {
				x.Fatalf("Enter beside a hold that entered by a reservation = %+v; want it held by 1", res)
			}
			if !x.NoLeft {
				x.within(l, "Enter", res.Left, began, time.Now())
			}
			return res.Position == 1
		})
	}},
	{"a hold that enters by a reservation begins an epoch if there is no other hold", func(x *fixture) {
		key := x.key("k")
		reader, writer := reads, writes
		reader.Numbered, writer.Numbered = true, true
		last := x.enterNumbered(key, "before", writer)
		for _, as := range [][]backends.Admission{{reader, reader}, {writer}} {
			all := x.waiters(key, as...)
			x.leave(key, "before")
			var number uint64
			for _, e := range all {
				x.wantWoken(e.waiter)
				res := x.enterAs(e)
				if !res.OK || res.Fence <= last || number > 0 && res.Fence != number {
					x.Fatalf("Enter of a waiter of %q after number %d = %+v; want it granted, with one number for all", e.a.Group, last, res)
				}
				number = res.Fence
			}
			for _, e := range all {
				x.leave(key, e.value())
			}
			last = x.enterNumbered(key, "before", writer)
		}
	}},
	{"a waiter gets the lowest slot that no other hold has", func(x *fixture) {
		key := x.key("k")
		x.slot(key, "one", slotted(2), 0)
		x.slot(key, "two", slotted(2), 1)
		all := x.waiters(key, slotted(2), slotted(2))
		for slot, leaves := range map[int]string{1: "two", 0: "one"} {
			x.leave(key, leaves)
			x.wantWoken(all[0].waiter)
			if res := x.enterAs(all[0]); !res.OK || res.Slot != slot {
				x.Fatalf("Enter of a waiter after slot %d is free = %+v; want it granted, with this slot", slot, res)
			}
			all = all[1:]
		}
	}},
	{"a reservation that is not taken ends, and the next waiter can have the key", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, writes, writes)
		reserved := x.leaveFor(key, "before")
		x.wantWoken(all[0].waiter)
		x.eventually("the next waiter enters", reserved, func() bool {
			res := x.enterAs(all[1])
			if res.OK && time.Now().Before(reserved.earliest) {
				x.Fatalf("granted while the key is reserved for another")
			}
			return res.OK
		})
		if res := x.enterAs(all[0]); res.OK || res.Position != 1 {
			x.Fatalf("Enter of the waiter that did not come = %+v; want it held, at position 1", res)
		}
	}},
	{"a late waiter keeps others out again after its next attempt, although it is refused", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, writes, reads, reads)
		reserved := x.leaveFor(key, "before")
		for _, reader := range all[1:] {
			x.eventually("the reader enters past the late writer", reserved, func() bool { return x.enterAs(reader).OK })
		}
		if res := x.enterAs(all[0]); res.OK || res.Position != 1 {
			x.Fatalf("Enter of a late writer beside readers = %+v; want it held, at position 1", res)
		}
		if res := x.enterAs(x.waiters(key, reads)[0]); res.OK || res.Position != 2 {
			x.Fatalf("Enter of a reader behind the writer = %+v; want it held, at position 2", res)
		}
		for _, reader := range all[1:] {
			x.leave(key, reader.value())
		}
		x.eventually("the writer enters", life{latest: time.Now()}, func() bool { return x.enterAs(all[0]).OK })
	}},
	{"a reader behind many writers that make no attempt enters after a reservation for each, and a writer the next time at once", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		dead := x.manyDead()
		x.waiters(key, slices.Repeat([]backends.Admission{writes}, dead)...)
		reader := x.waiters(key, reads)[0]
		x.leave(key, "before")
		most := time.Duration(dead) * (backends.Reservation + x.Resolution)
		x.eventually("the reader enters", life{latest: time.Now().Add(most)}, func() bool { return x.enterAs(reader).OK })
		next := x.waiters(key, writes)[0]
		if res := x.enterAs(next); res.Position != 1 {
			x.Errorf("Enter of the next writer = %+v; want position 1", res)
		}
		reserved := x.leaveFor(key, reader.value())
		x.wantWoken(next.waiter)
		if res := x.enterAs(next); !res.OK && (x.Bubble || x.lasts(reserved)) {
			x.Errorf("Enter of the writer that was woken = %+v; want it granted", res)
		}
	}},
	{"a reservation lasts for three round trips of its waiter", func(x *fixture) {
		x.inTime("there is a reservation", func(key string) bool {
			x.admit(key, "before", x.long, writes, 1, 0)
			far := writes
			far.RoundTrip = 250 * time.Millisecond
			x.waiters(key, far)
			began := time.Now()
			x.leave(key, "before")
			res, err := x.shared.Enter(x.Context(), key, "mine", x.long, writes)
			ended := time.Now()
			l := life{began.Add(3 * far.RoundTrip), ended.Add(3 * far.RoundTrip)}
			if !x.lasts(l) {
				return false
			}
			if err != nil || res.OK {
				x.Fatalf("Enter beside a reservation = %+v, %v; want it held", res, err)
			}
			if !x.NoLeft {
				x.within(l, "Enter", res.Left, began, ended)
			}
			return true
		})
	}},
	{"a waiter that leaves gives up its position, and its reservation goes to the next", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, writes, writes, writes)
		all[1].leave()
		x.eventually("the last one has position 2", life{latest: time.Now()}, func() bool { return x.enterAs(all[2]).Position == 2 })
		x.leaveFor(key, "before")
		x.wantWoken(all[0].waiter)
		all[0].leave()
		x.wantWoken(all[2].waiter)
		x.eventually("the last one enters", life{latest: time.Now()}, func() bool { return x.enterAs(all[2]).OK })
	}},
	{"when the head of the queue leaves, the waiters behind it that fit now are woken", func(x *fixture) {
		x.inTime("the readers", func(key string) bool {
			x.admit(key, "reader", x.long, reads, 1, -1)
			all := x.waiters(key, writes, reads, reads, writes)
			reserved := life{earliest: time.Now().Add(backends.Reservation)}
			all[0].leave()
			for _, reader := range all[1:3] {
				x.wantWoken(reader.waiter)
				res := x.enterAs(reader)
				if !x.lasts(reserved) {
					return false
				}
				if !res.OK {
					x.Errorf("Enter of a reader that was woken = %+v; want it granted", res)
				}
			}
			if res := x.enterAs(all[3]); res.OK || res.Position != 1 {
				x.Errorf("Enter of the writer behind them = %+v; want it held, at position 1", res)
			}
			return true
		})
	}},
	{"when the head of the queue leaves, a waiter behind it that does not fit is woken: it is the head now", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "before", x.long, writes, 1, 0)
		all := x.waiters(key, writes, writes, writes)
		all[0].leave()
		x.wantWoken(all[1].waiter)
		if res := x.enterAs(all[1]); res.OK || res.Position != 1 {
			x.Errorf("Enter of the next waiter = %+v; want it held, at position 1", res)
		}
	}},
	{"in order, a call is refused behind a waiter that does not fit; otherwise it enters", func(x *fixture) {
		for name, a := range map[string]backends.Admission{"readers": reads, "four": {Group: "write", Limit: 4, Turn: backends.Turn{InOrder: true}}} {
			key := x.key(name)
			x.admit(key, "one", x.long, a, 1, a.Room(1))
			x.admit(key, "two", x.long, a, 2, a.Room(2))
			x.waiters(key, writes)
			late := x.waiters(key, a, a)
			for i, e := range late {
				if res := x.enterAs(e); res.OK || res.Position != i+2 {
					x.Fatalf("second Enter of a waiter behind a writer (%s) = %+v; want it held, at position %d", name, res, i+2)
				}
			}
			if res, err := x.shared.Enter(x.Context(), key, "mine", x.long, a); err != nil || res.OK {
				x.Fatalf("Enter without a waiter, in order (%s) = %+v, %v; want it held", name, res, err)
			}
			a.InOrder = false
			x.admit(key, "joins", x.long, a, 3, a.Room(3))
		}
	}},
	{"a hold that is there is granted again in order, whoever waits", func(x *fixture) {
		key := x.key("k")
		x.admit(key, "reader", x.long, reads, 1, -1)
		x.waiters(key, writes)
		x.admit(key, "reader", x.long, reads, 1, -1)
	}},
	{"an end that a caller finds makes room for the head of the queue", func(x *fixture) {
		x.inTime("the first enters", func(scene string) bool {
			key, first, l := x.behindADeadHold(scene, 20*time.Millisecond, writes)
			reserved := life{earliest: l.earliest.Add(backends.Reservation)}
			late := false // the reservation of the first may have ended before its wake came
			x.eventually("the first is woken by the attempt of another", l, func() bool {
				res, err := x.shared.Enter(x.Context(), key, "mine", x.long, writes)
				late = res.OK && !x.Bubble && !x.lasts(reserved)
				if err != nil || res.OK && !late {
					x.Fatalf("Enter past a waiter, in order = %+v, %v; want it held", res, err)
				}
				select {
				case <-first.signal:
					return true
				default:
					return late
				}
			})
			if !late {
				x.eventually("the first enters", life{latest: time.Now()}, func() bool { return x.enterAs(first).OK })
			}
			return !late
		})
	}},
	{"an end beside a hold that lives makes room too, whether the caller that finds it is granted or refused", func(x *fixture) {
		two := backends.Admission{Limit: 2}
		for scene, a := range map[string]backends.Admission{
			"granted": two, // to the hold that lives
			"refused": {Group: "another"},
		} {
			key, first, l := x.behindADeadHold(x.key(scene), 20*time.Millisecond, two, "granted")
			x.eventually("the hold has ended", l, func() bool {
				res, err := x.shared.Enter(x.Context(), key, scene, x.long, a)
				if err != nil || res.OK != (scene == "granted") {
					x.Fatalf("Enter = %+v, %v; want it %s", res, err, scene)
				}
				return res.Holds == 1
			})
			x.wantWoken(first.waiter)
			if res := x.enterAs(first); !res.OK {
				x.Errorf("Enter of the waiter, after another call was %s = %+v; want it granted", scene, res)
			}
		}
	}},
	{"a writer is alone, however many readers and writers come at the same time", func(x *fixture) {
		key := x.key("k")
		var reading, writing atomic.Int64
		var failed atomic.Bool
		var mu sync.Mutex
		together(callers, func(i int) {
			a := writes
			if i%3 == 0 {
				a = reads
			}
			a.Turn = backends.Turn{}
			token := fmt.Sprint("token", i)
			for entered := 0; entered < rounds && !failed.Load(); {
				res, err := x.shared.Enter(x.Context(), key, token, x.long, a)
				if err != nil {
					x.Errorf("Enter: %v", err)
					failed.Store(true) // the hold may be there: nobody else would enter
					return
				}
				if !res.OK {
					time.Sleep(x.Resolution)
					continue
				}
				entered++
				mu.Lock()
				r, w := reading.Load(), writing.Load()
				if a.Group == "write" {
					w = writing.Add(1)
				} else {
					r = reading.Add(1)
				}
				mu.Unlock()
				if w > 1 || w == 1 && r > 0 {
					x.Errorf("%d writers beside %d readers", w, r)
				}
				time.Sleep(x.Resolution)
				if a.Group == "write" {
					writing.Add(-1)
				} else {
					reading.Add(-1)
				}
				if ok, err := x.shared.Leave(x.Context(), key, token); err != nil || !ok {
					x.Errorf("Leave = %v, %v; want true", ok, err)
				}
			}
		})
	}},
	{otherKindSays, func(x *fixture) {
		plain, ok := x.shared.(backends.QueuedStore)
		if !ok {
			return
		}
		soon := func(what string, call func() (backends.Result, error)) {
			x.Helper()
			x.eventually(what, life{latest: time.Now().Add(backends.Reservation + x.Resolution)}, func() bool {
				res, err := call()
				if err != nil {
					x.Fatalf("%s = %+v, %v", what, res, err)
				}
				return res.OK
			})
		}
		set := func(key, token, waiter string, inOrder bool) func() (backends.Result, error) {
			turn := backends.Turn{Waiter: waiter, InOrder: inOrder}
			return func() (backends.Result, error) { return plain.SetNXQueued(x.Context(), key, token, x.long, turn) }
		}
		for name, a := range map[string]backends.Admission{"in order": writes, "as it comes": {Group: "write", Limit: 1}} {
			enter := func(key, token string) func() (backends.Result, error) {
				return func() (backends.Result, error) { return x.shared.Enter(x.Context(), key, token, x.long, a) }
			}
			key := x.key("for a value, " + name)
			soon("SetNXQueued", set(key, "before", "", false))
			if res, err := set(key, "theirs", x.newWaiter(key).name, false)(); err != nil || res.OK {
				x.Fatalf("SetNXQueued = %+v, %v; want it held", res, err)
			}
			x.outside.Delete(key) // its time is over
			for _, token := range []string{"one", "two"} {
				soon("Enter", enter(key, token))
				w := x.waiters(key, a)[0]
				x.leave(key, token)
				soon("Enter of a waiter", func() (backends.Result, error) { return x.enterAs(w), nil })
				x.leave(key, w.value())
			}

			key = x.key("for a hold, " + name)
			soon("Enter", enter(key, "before"))
			x.waiters(key, a)
			x.outside.Delete(key)
			for _, token := range []string{"one", "two"} {
				soon("SetNXQueued", set(key, token, "", a.InOrder))
				w := x.newWaiter(key)
				if res, err := set(key, w.value(), w.name, a.InOrder)(); err != nil || res.OK || res.Position == 0 {
					x.Fatalf("SetNXQueued of a waiter = %+v, %v; want it held, with a position", res, err)
				}
				if ok, err := plain.DeleteIf(x.Context(), key, token); err != nil || !ok {
					x.Fatalf("DeleteIf = %v, %v; want true", ok, err)
				}
				soon("SetNXQueued of a waiter", set(key, w.value(), w.name, a.InOrder))
				if ok, err := plain.DeleteIf(x.Context(), key, w.value()); err != nil || !ok {
					x.Fatalf("DeleteIf = %v, %v; want true", ok, err)
				}
			}
		}
	}},
	{"WatchQueued without a name, or with an @ in it, is a permanent error, and so is an attempt", func(x *fixture) {
		for _, name := range []string{"", "a@b"} {
			ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
			x.Cleanup(cancel)
			x.wantInvalid("WatchQueued", x.queue.WatchQueued(ctx, x.key("k"), name, func() {}))
		}
		a := reads
		a.Waiter = "a@b"
		_, err := x.shared.Enter(x.Context(), x.key("k"), "token", x.long, a)
		x.wantInvalid("Enter", err)
	}},
}

const otherKindSays = "a waiter for a lock of the other kind, a value or a hold, keeps nobody out for longer than a reservation"

// behindADeadHold makes a waiter stand behind a hold that ends after ttl, or later on a slow
// machine, and behind those that live. The key begins with scene.
func (x *fixture) behindADeadHold(scene string, ttl time.Duration, a backends.Admission, living ...string) (key string, first entrant, l life) {
	x.Helper()
	for {
		key = x.own(scene + ttl.String())
		for _, token := range living {
			x.admit(key, token, x.long, a, 0, 0)
		}
		l = x.admit(key, "dead", ttl, a, 0, 0)
		w := x.newWaiter(key)
		first = entrant{w, a}
		first.a.Waiter = w.name
		if res := x.enterAs(first); !res.OK {
			return key, first, l
		}
		x.leave(key, w.value())
		ttl *= 4
	}
}

// entrant is a waiter for a hold.
type entrant struct {
	*waiter
	a backends.Admission
}

// waiters makes waiters stand in the queue of a key that refuses them, behind those that do so.
func (x *fixture) waiters(key string, as ...backends.Admission) []entrant {
	x.Helper()
	var all []entrant
	for _, a := range as {
		w := x.newWaiter(key)
		a.Waiter = w.name
		e := entrant{w, a}
		if res := x.enterAs(e); res.OK || res.Position == 0 {
			x.Fatalf("Enter of a waiter of %q = %+v; want it held, with a position", a.Group, res)
		}
		all = append(all, e)
	}
	return all
}

func (x *fixture) enterAs(e entrant) backends.Result {
	x.Helper()
	res, err := x.shared.Enter(x.Context(), e.key, e.value(), x.long, e.a)
	if err != nil {
		x.Fatalf("Enter of a waiter: %v", err)
	}
	return res
}

// leaveFor calls Leave, which must find the hold. It returns the life of the reservations.
func (x *fixture) leaveFor(key, token string) life {
	x.Helper()
	began := time.Now()
	x.leave(key, token)
	return life{began.Add(backends.Reservation), time.Now().Add(backends.Reservation)}
}
