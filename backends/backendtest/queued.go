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
	sentences: func(QueuedHarness) []sentence {
		return slices.Concat(placeSentences, turnSentences, orderSentences, queuedGoneSentences, queuedInputSentences,
			queuedConcurrencySentences)
	},
	give: func(x *fixture, store backends.QueuedStore, _ Outside) { x.store, x.queued = store, store },
}

var placeSentences = []sentence{
	{"whoever is refused takes the last place, and keeps it when he asks again", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "before", x.long)
		all := x.line(key, 3)
		for range 2 {
			for _, i := range []int{1, 0, 2} {
				x.stand(all[i], i+1)
			}
		}
		x.wantValue(key, "before", l)
	}},
	{"whoever asks for nobody takes no place", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		for _, inOrder := range []bool{false, true} {
			if res := x.askFor(key, "", inOrder, "mine"); res.OK || res.Position != 0 {
				x.Fatalf("SetNXQueued for nobody = %+v; want it refused, without a place", res)
			}
		}
		x.line(key, 1)
	}},
	{"a waiter who is not watched for gets no place", func(x *fixture) {
		key, other := x.key("k"), x.key("other")
		x.grant(key, "before", x.long)
		x.grant(other, "before", x.long)
		ended := x.comes(key)
		ended.goes()
		x.eventually("the end of a watch is noticed", life{latest: time.Now()}, func() bool {
			return x.ask(ended, false).Position == 0
		})
		for what, waiter := range map[string]string{
			"a waiter who was never watched for":           "stranger-" + x.id,
			"a waiter whose watch has ended":               ended.name,
			"a waiter who is watched for with another key": x.comes(other).name,
		} {
			if res := x.askFor(key, waiter, false, "mine"); res.OK || res.Position != 0 {
				x.Fatalf("SetNXQueued for %s = %+v; want it refused, without a place", what, res)
			}
		}
		w := x.comes(key)
		x.eventually("what the ended watch had is given up", life{latest: time.Now()}, func() bool {
			return x.ask(w, false).Position == 1
		})
	}},
	{"a waiter who is granted the key has no place any more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		x.outside.Delete(key)
		x.take(all[1])
		x.stand(all[0], 1)
		x.stand(all[2], 2)
		if res := x.askFor(key, all[1].name, false, "another value"); res.OK || res.Position != 3 {
			x.Fatalf("SetNXQueued for who has the key with another value = %+v; want it refused, and place 3", res)
		}
	}},
	{"whoever believes that the key is free has no place if it is, and one if it is not", func(x *fixture) {
		key := x.key("k")
		first, second := x.comes(key), x.comes(key)
		x.believe(first, true, 0)
		x.believe(second, false, 1)
		x.outside.Delete(key)
		x.believe(second, true, 0) // who had a place
		x.stand(first, 1)
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
			x.wantTurn(all[i])
			x.take(all[i])
			x.remove(key, all[i].value())
			x.wantNothing(key)
		}
	}},
	{"a place outlives the value that was in the way", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 2)
		x.outside.Delete(key)
		x.grant(key, "mine", x.long)
		x.stand(all[1], 2)
		x.stand(all[0], 1)
	}},
	{"a waiter has a place behind a value without expiry too, which is refused as foreign", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "theirs", 0)
		res := x.ask(x.comes(key), false)
		if want := (backends.Result{Foreign: true, Position: 1}); res != want {
			x.Fatalf("SetNXQueued = %+v; want %+v", res, want)
		}
		x.wantForever(key, "theirs")
	}},
}

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

var queuedGoneSentences = []sentence{
	{"a waiter whose watch ends gives up his place, and is woken no more", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		all[0].goes()
		x.eventually("the place is given up", life{latest: time.Now()}, func() bool { return x.ask(all[2], false).Position == 2 })
		told := all[0].count.Load()
		x.pass(key, "before")
		x.wantTurn(all[1])
		x.askUntilGranted(all[1], true)
		if n := all[0].count.Load() - told; n != 0 {
			x.Errorf("a waiter who has gone was woken %d times", n)
		}
	}},
	{"a waiter whose watch has ended is passed over at once", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			all[0].goes()
			reserved := x.pass(key, "before")
			x.wantTurn(all[1])
			return x.ask(all[1], true).OK && x.lasts(reserved)
		})
	}},
	{"what is reserved for a waiter goes to the next at once when his watch ends", func(x *fixture) {
		x.inTime("the second is granted the key", func(key string) bool {
			x.grant(key, "before", x.long)
			all := x.line(key, 3)
			reserved := x.pass(key, "before")
			x.wantTurn(all[0])
			all[0].goes()
			for {
				switch granted := x.ask(all[1], true).OK; {
				case !x.lasts(reserved):
					return false
				case granted:
					return true
				}
				x.wantTurn(all[1])
			}
		})
	}},
	{"what is reserved for the last of a queue is free at once when his watch ends, and those who watch are woken", func(x *fixture) {
		x.inTime("the key is free", func(key string) bool {
			x.grant(key, "before", x.long)
			only, others := x.line(key, 1)[0], x.watch(x.Context(), key)
			reserved := x.pass(key, "before")
			x.wantTurn(only)
			only.goes()
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
	{"whoever is next by then is woken when a reservation was not taken", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, 3)
		reserved := x.pass(key, "before")
		all[1].goes() // who may have been told to look
		x.wantALook(all[2], reserved)
		x.askUntilGranted(all[2], true)
	}},
}

var queuedInputSentences = []sentence{
	{"a waiter with an @ is refused, and nothing is stored", func(x *fixture) {
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
	{"WatchQueued for nobody is refused", func(x *fixture) {
		x.wantInvalid("WatchQueued for nobody", x.queued.WatchQueued(x.Context(), x.key("k"), "", func() {}))
	}},
	{"WatchQueued with a ctx that is already done returns its error", func(x *fixture) {
		key := x.key("k")
		x.done("WatchQueued", func(ctx context.Context) error {
			return x.queued.WatchQueued(ctx, key, "late-"+x.id, func() {})
		})
	}},
}

var queuedConcurrencySentences = []sentence{
	{"of many who ask at once each has a place of his own", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := make([]*waiter, callers)
		for i := range all {
			all[i] = x.comes(key)
		}
		places := make([]int, callers)
		together(callers, func(i int) { places[i] = x.ask(all[i], i%2 == 0).Position })
		sorted := slices.Sorted(slices.Values(places))
		for i, place := range sorted {
			if place != i+1 {
				x.Fatalf("the places are %v", places)
			}
		}
		for i, w := range all {
			x.stand(w, places[i])
		}
	}},
	{"many who wait have the key one after the other, in the order of their places", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var order []int
		late := false // somebody did not come before his reservation ended
		var holders atomic.Int64
		var mu sync.Mutex
		passed := time.Now()
		var everybody sync.WaitGroup
		for i, w := range all {
			everybody.Go(func() {
				x.wantTurn(w)
				for !x.ask(w, true).OK {
					x.wantTurn(w)
				}
				if n := holders.Add(1); n != 1 {
					x.Errorf("%d have the key at once", n)
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
		everybody.Wait()
		if len(order) != callers || !late && !slices.IsSorted(order) {
			x.Fatalf("they had the key in the order %v", order)
		}
		x.wantNothing(key)
	}},
	{"nobody is stuck when others give up", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var granted atomic.Int64
		var everybody sync.WaitGroup
		for i, w := range all {
			everybody.Go(func() {
				if i%2 == 0 {
					time.Sleep(time.Duration(i) * x.Resolution)
					w.goes()
					return
				}
				x.wantTurn(w)
				for !x.ask(w, i%4 == 1).OK {
					x.wantTurn(w)
				}
				granted.Add(1)
				time.Sleep(x.Resolution)
				x.remove(key, w.value())
			})
		}
		x.remove(key, "before")
		everybody.Wait()
		if n := granted.Load(); n != callers/2 {
			x.Fatalf("%d of %d who waited were granted the key", n, callers/2)
		}
	}},
}

// A waiter is watched for.
type waiter struct {
	*wakes
	key, name string
	goes      context.CancelFunc
}

// comes watches key for someone new, who has no place yet. He goes at the end of the sentence, if not before.
func (x *fixture) comes(key string) *waiter {
	x.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
	w := &waiter{newWakes(), key, rand.Text(), cancel}
	x.Cleanup(func() { gone(x.Bubble, cancel) })
	if err := x.queued.WatchQueued(ctx, key, w.name, w.wake); err != nil {
		x.Fatalf("WatchQueued(%.60q): %v", key, err)
	}
	return w
}

// gone lets a waiter go, and in a bubble until he has gone: the store may be closed next.
func gone(bubble bool, goes context.CancelFunc) {
	goes()
	if bubble {
		synctest.Wait()
	}
}

// line makes n waiters for key, which is held, and gives them places in their order.
func (x *fixture) line(key string, n int) []*waiter {
	x.Helper()
	all := make([]*waiter, n)
	for i := range all {
		all[i] = x.comes(key)
		x.stand(all[i], i+1)
	}
	return all
}

// stand asks for a key that is not to be had, and checks the place.
func (x *fixture) stand(w *waiter, place int) {
	x.Helper()
	if res := x.ask(w, false); res.OK || res.Position != place {
		x.Fatalf("SetNXQueued(%.60q) for a waiter = %+v; want it refused, and place %d", w.key, res, place)
	}
}

// ask calls SetNXQueued with a value of the waiter's.
func (x *fixture) ask(w *waiter, inOrder bool) backends.Result {
	x.Helper()
	return x.askFor(w.key, w.name, inOrder, w.value())
}

// askFor calls SetNXQueued with that waiter, or none.
func (x *fixture) askFor(key, waiter string, inOrder bool, value string) backends.Result {
	x.Helper()
	res, err := x.queued.SetNXQueued(x.Context(), key, value, x.long, backends.Turn{Waiter: waiter, InOrder: inOrder})
	if err != nil {
		x.Fatalf("SetNXQueued(%.60q, %.60q): %v", key, value, err)
	}
	return res
}

// believe asks for a key that may be free, with a value of the waiter's.
func (x *fixture) believe(w *waiter, granted bool, place int) {
	x.Helper()
	res, err := x.queued.SetNXQueued(x.Context(), w.key, w.value(), x.long, backends.Turn{Waiter: w.name, Free: true})
	if err != nil || res.OK != granted || res.Position != place {
		x.Fatalf("SetNXQueued(%.60q) for a waiter who believes that it is free = %+v, %v; want %v, and place %d", w.key, res, err, granted, place)
	}
}

func (w *waiter) value() string { return "of " + w.name }

// take asks for a key that must be the waiter's to have.
func (x *fixture) take(w *waiter) life {
	x.Helper()
	began := time.Now()
	if res := x.ask(w, false); !res.OK || res.Position != 0 {
		x.Fatalf("SetNXQueued(%.60q) for whose turn it is = %+v; want it granted", w.key, res)
	}
	return life{began.Add(x.long), time.Now().Add(x.long)}
}

// pass removes the value of a key that someone waits for, and says when the reservation ends.
func (x *fixture) pass(key, value string) life {
	x.Helper()
	began := time.Now()
	x.remove(key, value)
	return life{began.Add(backends.Reservation), time.Now().Add(backends.Reservation)}
}

// lasts tells whether a reservation that ends at l was still there when the last call answered. What was found after that
// proves nothing, since the machine was slow.
func (x *fixture) lasts(l life) bool { return time.Now().Before(l.earliest.Add(-x.tolerance())) }

// inTime runs a scene, with a key of its own each time, until it says that it was played before a reservation ended.
func (x *fixture) inTime(what string, scene func(key string) bool) {
	x.Helper()
	limit := time.Now().Add(patience)
	for n := 0; !scene(x.key(fmt.Sprint("scene", n))); n++ {
		if time.Now().After(limit) {
			x.Fatalf("%s: not before the reservation ended, in %d attempts", what, n+1)
		}
	}
}

// wantTurn waits for a wake.
func (x *fixture) wantTurn(w *waiter) {
	x.Helper()
	select {
	case <-w.signal:
	case <-time.After(patience):
		x.Fatalf("a waiter was not told within %v that it is his turn", patience)
	}
}

// askUntilGranted asks at every wake, and now.
func (x *fixture) askUntilGranted(w *waiter, inOrder bool) {
	x.Helper()
	for !x.ask(w, inOrder).OK {
		x.wantTurn(w)
	}
}

// refusedToAll checks that nobody but w has key while a reservation lasts. It tells whether it did.
func (x *fixture) refusedToAll(key string, l life, others ...*waiter) bool {
	x.Helper()
	type call struct {
		name string
		make func() (backends.Result, error)
	}
	calls := []call{
		{"SetNX", func() (backends.Result, error) { return x.store.SetNX(x.Context(), key, "mine", x.long) }},
		{"SetNXQueued for nobody", func() (backends.Result, error) { return x.askFor(key, "", false, "mine"), nil }},
		{"SetNXQueued for nobody, in order", func() (backends.Result, error) { return x.askFor(key, "", true, "mine"), nil }},
	}
	for _, w := range others {
		calls = append(calls,
			call{"SetNXQueued for another", func() (backends.Result, error) { return x.ask(w, false), nil }},
			call{"SetNXQueued for another, in order", func() (backends.Result, error) { return x.ask(w, true), nil }})
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
			x.Fatalf("%s of a key that is reserved = %+v, %v; want it refused", c.name, res, err)
		}
		if isSet := c.name[0] == 'S'; isSet && !x.NoLeft {
			x.within(l, c.name, res.Left, began, ended)
			if res.Left > backends.Reservation {
				x.Errorf("%s says that %v are left of a reservation of %v", c.name, res.Left, backends.Reservation)
			}
		}
	}
	return true
}

// wantInvalid checks that a call was refused as bad input.
func (x *fixture) wantInvalid(call string, err error) {
	x.Helper()
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		x.Fatalf("%s: error %v; want it refused", call, err)
	}
	x.wantPermanent(call, err)
}

// A way to ask with SetNXQueued.
type asking struct {
	says                 string
	waits, inOrder, free bool
}

var asked = []asking{
	{"nobody", false, false, false},
	{"nobody, in order,", false, true, false},
	{"a waiter", true, false, false},
	{"a waiter, in order,", true, true, false},
	{"a waiter who believes that the key is free", true, false, true},
	{"a waiter, in order, who believes that the key is free", true, true, true},
}

// notForWaiters are sentences that do not run with waiters.
var notForWaiters = []string{
	// they would have the key when it is deleted
	"a key may hold any text: it is granted, refused, extended and deleted like any other",
	"a DeleteIf never removes the value of a SetNX that came between",
	// a thousand of them, for a value that is not theirs
	"a value may hold any text, and no text in it means anything",
}

// suite is what a plain store promises that is asked this way.
func (a asking) suite() suite[backends.Store, Outside] {
	c := ofStore
	c.sentences = func(h Harness) []sentence {
		return slices.DeleteFunc(ofStore.sentences(h), func(s sentence) bool {
			return a.waits && slices.Contains(notForWaiters, s.says)
		})
	}
	return c
}

// queued is the harness of the plain store that calls SetNXQueued where SetNX is asked for.
func queued(h QueuedHarness, a asking) Harness {
	return Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		New: func(t *testing.T) (backends.Store, Outside) {
			store, outside := h.New(t)
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(func() { gone(h.Bubble, cancel) })
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
	turn := backends.Turn{InOrder: s.inOrder, Free: s.free}
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
	res.Position = 0 // of which a plain store knows nothing
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
