package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
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
