package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// InspectedStore is a store that [RunInspector] can test. If it is a [backends.Lister] or a
// [backends.Evictor], the suite tests that too. If it is a [backends.SharedStore], a
// [backends.QueuedStore], a [backends.NumberedStore] or a [backends.TransferStore], the suite tests
// all with those as well.
type InspectedStore interface {
	backends.Store
	backends.Inspector
}

var ofInspected = suite[InspectedStore, SharedOutside]{
	sentences: func(InspectorHarness) []sentence {
		return slices.Concat(inspectSentences, listSentences, evictSentences)
	},
	give: func(x *fixture, store InspectedStore, outside SharedOutside) {
		x.inspector, x.store, x.setShared = store, store, outside.SetShared
		x.shared, _ = store.(backends.SharedStore)
		x.queued, _ = store.(backends.QueuedStore)
		x.numbers, _ = store.(backends.NumberedStore)
		x.queue = x.queued
		x.lister, _ = store.(backends.Lister)
		x.evictor, _ = store.(backends.Evictor)
		x.transfers, _ = store.(backends.TransferStore)
	},
}

var inspectSentences = []sentence{
	{"a free key has no holds, and nobody waits for it", func(x *fixture) {
		if s := x.inspect(x.key("k")); s.Holding != 0 || len(s.Holds) != 0 || s.Waiting > 0 || s.Reserved != 0 || s.Foreign {
			x.Errorf("State = %+v", s)
		}
	}},
	{"a store without a queue says that it does not know how many wait, and one with a queue that nobody waits", func(x *fixture) {
		held, shared, foreign := x.key("held"), x.key("shared"), x.key("foreign")
		x.grant(held, "one", x.long)
		x.outside.Set(foreign, "by an operator", 0)
		keys := []string{x.key("free"), held, foreign}
		if x.shared != nil {
			x.admit(shared, "one", x.long, backends.Admission{Group: "group"}, 1, -1)
			keys = append(keys, shared)
		}
		want := backends.NotKnown
		if x.queued != nil {
			want = 0
		}
		for _, key := range keys {
			if s := x.inspect(key); s.Waiting != want {
				x.Errorf("%q: Waiting = %d, want %d", key, s.Waiting, want)
			}
		}
		if x.lister == nil {
			return
		}
		for key, s := range x.list(held, 10) {
			if s.Waiting != want {
				x.Errorf("%q in a List: Waiting = %d, want %d", key, s.Waiting, want)
			}
		}
	}},
	{"a held key has one hold, with the label of its holder and its remaining life", func(x *fixture) {
		for token, label := range map[string]string{labelled("ann's host/7"): "ann's host/7", rand.Text(): "", "no label": ""} {
			key := x.key("k" + token)
			l := x.grant(key, token, x.long)
			x.wantHolds(key, []string{label}, []life{l})
			x.wantHolds(key, []string{label}, []life{x.extend(key, token, 2*x.long)})
		}
	}},
	{"a key that was released, or whose hold has ended, has no holds", func(x *fixture) {
		key, short := x.key("k"), x.key("short")
		x.grant(key, "one", x.long)
		x.remove(key, "one")
		l := x.grant(short, "one", 20*time.Millisecond)
		x.eventually("the hold is over", l, func() bool { return x.inspect(short).Holding == 0 })
		for _, key := range []string{key, short} {
			if s := x.inspect(key); s.Holding != 0 || len(s.Holds) != 0 {
				x.Errorf("State = %+v", s)
			}
		}
	}},
	{"a State has no token", func(x *fixture) {
		key, secret := x.key("k"), rand.Text()
		x.grant(key, "ann "+secret, x.long)
		waits := x.waitFor(key, "bob")
		x.wantSecret(key, secret, strings.TrimPrefix(waits, "bob "))
		x.remove(key, "ann "+secret)
		x.wantSecret(key, secret, strings.TrimPrefix(waits, "bob "))
		if x.shared != nil {
			key := x.key("shared")
			x.admit(key, "ann "+secret, x.long, backends.Admission{Group: "group"}, 1, -1)
			x.wantSecret(key, secret)
		}
	}},
	{"Inspect changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "one", x.long)
		waiter := x.waitFor(key, "bob")
		for range 3 {
			x.inspect(key)
		}
		x.wantValue(key, "one", l)
		if s := x.inspect(key); x.queued != nil && (s.Waiting != 1 || !slices.Equal(s.Waiters, []string{"bob"})) {
			x.Errorf("State = %+v after %q has begun to wait", s, waiter)
		}
	}},
	{"a value without expiry is foreign, and no hold", func(x *fixture) {
		key := x.key("k")
		x.outside.Set(key, "by an operator", 0)
		keys := []string{key}
		if x.shared != nil {
			other := x.key("shared")
			x.setShared(other)
			keys = append(keys, other)
		}
		for _, key := range keys {
			if s := x.inspect(key); !s.Foreign || s.Holding != 0 || len(s.Holds) != 0 {
				x.Errorf("State = %+v", s)
			}
		}
	}},
	{"Inspect of a value of another type is an error that matches ErrWrongType", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		if s, err := x.inspector.Inspect(x.Context(), key); !errors.Is(err, backends.ErrWrongType) {
			x.Errorf("Inspect = %+v, %v", s, err)
		} else {
			x.wantPermanent("Inspect", err)
		}
	}},
	{"a refused call has the label of the holder", func(x *fixture) {
		key := x.key("k")
		x.grant(key, labelled("ann"), x.long)
		res, err := x.store.SetNX(x.Context(), key, labelled("bob"), x.long)
		x.wantHolder("SetNX", res, err, "ann")
		if x.queued != nil {
			res, err := x.queued.SetNXQueued(x.Context(), key, labelled("bob"), x.long, backends.Turn{InOrder: true})
			x.wantHolder("SetNXQueued", res, err, "ann")
		}
		if x.numbers != nil {
			res, err := x.numbers.SetNXNumbered(x.Context(), key, labelled("bob"), x.long, backends.Turn{})
			x.wantHolder("SetNXNumbered", res, err, "ann")
		}
		key = x.key("none")
		x.grant(key, rand.Text(), x.long)
		res, err = x.store.SetNX(x.Context(), key, labelled("bob"), x.long)
		x.wantHolder("SetNX", res, err, "")
	}},
	{"a label that locker.WithHolder does not take is not told", func(x *fixture) {
		for i, label := range []string{"ann\xff", "ann\n", "\x1b[1m", strings.Repeat("x", 101), "ann@host", "lockstep:reserved:ann"} {
			key := x.key(fmt.Sprint("k", i))
			x.grant(key, labelled(label), x.long)
			res, err := x.store.SetNX(x.Context(), key, labelled("bob"), x.long)
			x.wantHolder("SetNX", res, err, "")
			if s := x.inspect(key); len(s.Holds) > 0 && s.Holds[0].Holder != "" {
				x.Errorf("State = %+v", s)
			}
			if x.shared != nil {
				key := x.key(fmt.Sprint("shared", i))
				x.admit(key, labelled(label), x.long, backends.Admission{Limit: 1}, 1, 0)
				res, err := x.shared.Enter(x.Context(), key, labelled("bob"), x.long, backends.Admission{Limit: 1})
				x.wantHolder("Enter", res, err, "")
			}
		}
	}},
	{"a refused Enter has the label of the hold whose end would let it in", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key, a := x.key("k"), backends.Admission{Limit: 3}
		for i, holder := range []string{"ann", "bob", "col"} {
			x.admit(key, labelled(holder), x.long+time.Duration(i)*5*x.Resolution, a, i+1, 2-i)
		}
		for limit, holder := range []string{1: "col", 2: "bob", 3: "ann"} {
			if limit > 0 {
				res, err := x.shared.Enter(x.Context(), key, labelled("dan"), x.long, backends.Admission{Limit: limit})
				if x.NoLeft && slices.Contains([]string{"ann", "bob", "col"}, res.Holder) {
					holder = res.Holder // a store that does not know the ends names any of them
				}
				x.wantHolder(fmt.Sprintf("Enter with limit %d", limit), res, err, holder)
			}
		}
	}},
	{"shared holds are listed in the order of their ends, and have their group", func(x *fixture) {
		if x.shared == nil {
			return
		}
		for _, group := range []string{"readers", ""} {
			key := x.key("k" + group)
			a := backends.Admission{Group: group}
			second := x.admit(key, labelled("second"), 2*x.long, a, 1, -1)
			third := x.admit(key, labelled("third"), 3*x.long, a, 2, -1)
			first := x.admit(key, "first", x.long, a, 3, -1)
			s := x.wantHolds(key, []string{"", "second", "third"}, []life{first, second, third})
			if s.Group != group {
				x.Errorf("the group is %q; want %q", s.Group, group)
			}
		}
	}},
	{"a shared hold that has ended is not told beside one that goes on", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.admit(key, labelled("ann"), x.long, backends.Admission{}, 1, -1)
		l := x.admit(key, labelled("bob"), 20*time.Millisecond, backends.Admission{}, 2, -1)
		x.eventually("one hold goes on", l, func() bool { return x.inspect(key).Holding == 1 })
		if s := x.inspect(key); len(s.Holds) != 1 || s.Holds[0].Holder != "ann" {
			x.Errorf("State = %+v; want the hold of ann", s)
		}
	}},
	{"a hold with a slot shows it", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		x.admit(key, labelled("ann"), x.long, slotted(3), 1, 2)
		x.admit(key, labelled("bob"), x.long+5*x.Resolution, slotted(3), 2, 1)
		if s := x.inspect(key); len(s.Holds) != 2 || s.Holds[0].Slot != 0 || s.Holds[1].Slot != 1 {
			x.Errorf("State = %+v; want slots 0 and 1", s)
		}
	}},
	{"at most MaxListed holds are listed, and all are counted", func(x *fixture) {
		if x.shared == nil {
			return
		}
		key := x.key("k")
		for i := range backends.MaxListed + 2 {
			x.admit(key, fmt.Sprint("hold ", i), x.long, backends.Admission{}, i+1, -1)
		}
		if s := x.inspect(key); len(s.Holds) != backends.MaxListed || s.Holding != backends.MaxListed+2 {
			x.Errorf("%d holds are listed and %d are counted", len(s.Holds), s.Holding)
		}
	}},
	{"those that wait are listed from the head of the queue on, at most MaxListed, and all are counted", func(x *fixture) {
		if x.queued == nil {
			return
		}
		key := x.key("k")
		x.grant(key, "one", x.long)
		want := make([]string, backends.MaxListed+2)
		for i := range want {
			if i%2 == 0 {
				want[i] = fmt.Sprint("waiter ", i)
			}
			x.waitFor(key, want[i])
		}
		if s := x.inspect(key); s.Waiting != len(want) || !slices.Equal(s.Waiters, want[:backends.MaxListed]) {
			x.Errorf("State = %+v; want the waiters %q", s, want)
		}
	}},
	{"a waiter that has left the queue is not told", func(x *fixture) {
		if x.queued == nil {
			return
		}
		key := x.key("k")
		x.grant(key, "one", x.long)
		x.line(key, 1)[0].leave()
		x.waitFor(key, "ann")
		x.eventually("one waiter is told", life{latest: time.Now()}, func() bool {
			s := x.inspect(key)
			return s.Waiting == 1 && slices.Equal(s.Waiters, []string{"ann"})
		})
	}},
	{"a reservation is no hold, and its waiter waits no more", func(x *fixture) {
		if x.queued == nil {
			return
		}
		x.inTime("Inspect", func(key string) bool {
			x.grant(key, "one", x.long)
			x.waitFor(key, "ann")
			x.waitFor(key, "bob")
			l := x.pass(key, "one")
			s := x.inspect(key)
			if !x.lasts(l) {
				return false
			}
			if s.Holding != 0 || len(s.Holds) != 0 || s.Reserved != 1 || !slices.Equal(s.Waiters, []string{"bob"}) || s.Waiting != 1 {
				x.Errorf("State = %+v; want one reservation, and bob waiting", s)
			}
			return true
		})
	}},
	{"a reservation for a shared hold is no hold, and has no group", func(x *fixture) {
		if _, ok := x.shared.(backends.OrderedStore); !ok {
			return
		}
		x.inTime("Inspect", func(key string) bool {
			x.admit(key, "writer", x.long, writes, 0, 0)
			x.waiters(key, reads, reads, writes)
			l := x.leaveFor(key, "writer")
			s := x.inspect(key)
			if !x.lasts(l) {
				return false
			}
			if s.Holding != 0 || len(s.Holds) != 0 || s.Group != "" || s.Reserved != 2 || s.Waiting != 1 || len(s.Waiters) != 1 {
				x.Errorf("State = %+v; want the reservations of two readers, and a writer waiting", s)
			}
			return true
		})
	}},
	{"the last number of a key is told, also when nobody holds it", func(x *fixture) {
		if x.numbers == nil {
			return
		}
		key := x.key("k")
		if s := x.inspect(key); s.Fence != 0 {
			x.Errorf("number %d before any grant", s.Fence)
		}
		res, err := x.numbers.SetNXNumbered(x.Context(), key, "one", x.long, backends.Turn{})
		if err != nil || !res.OK {
			x.Fatalf("SetNXNumbered = %+v, %v", res, err)
		}
		held := x.inspect(key).Fence
		x.remove(key, "one")
		last := res.Fence
		if x.NoLast {
			last = 0
		}
		if free := x.inspect(key).Fence; held != res.Fence || free != last {
			x.Errorf("number %d while held and %d when free; want %d and %d", held, free, res.Fence, last)
		}
	}},
	{"Inspect with a ctx that is done is the error of the ctx", func(x *fixture) {
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		if s, err := x.inspector.Inspect(ctx, x.key("k")); !errors.Is(err, context.Canceled) {
			x.Errorf("Inspect = %+v, %v", s, err)
		}
	}},
}

// labelled returns a token with a label, as locker.WithHolder makes it; empty: one without.
func labelled(label string) string {
	if label == "" {
		return rand.Text()
	}
	return label + " " + rand.Text()
}

// inspect calls Inspect, which must answer.
func (x *fixture) inspect(key string) backends.State {
	x.Helper()
	ctx, cancel := x.unhurried()
	defer cancel()
	s, err := x.inspector.Inspect(ctx, key)
	if err != nil {
		x.Fatalf("Inspect(%.60q): %v", key, err)
	}
	return s
}

// wantHolds checks the holds of a key: their labels and their lives.
func (x *fixture) wantHolds(key string, labels []string, lives []life) backends.State {
	x.Helper()
	began := time.Now()
	s := x.inspect(key)
	ended := time.Now()
	if s.Holding != len(labels) || len(s.Holds) != len(labels) || s.Foreign || s.Reserved != 0 {
		x.Fatalf("State = %+v; want the holds of %q", s, labels)
	}
	for i, h := range s.Holds {
		if h.Holder != labels[i] || h.Slot != -1 {
			x.Errorf("hold %d is %+v; want the holder %q, and no slot", i, h, labels[i])
		}
		x.within(lives[i], fmt.Sprintf("hold %d", i), h.Left, began, ended)
	}
	return s
}

// wantHolder checks a call that was refused.
func (x *fixture) wantHolder(call string, res backends.Result, err error, holder string) {
	x.Helper()
	if err != nil || res.OK || res.Holder != holder {
		x.Errorf("%s = %+v, %v; want it held by %q", call, res, err, holder)
	}
}

// wantSecret checks that Inspect shows none of the secrets.
func (x *fixture) wantSecret(key string, secrets ...string) {
	x.Helper()
	shown := fmt.Sprintf("%+v", x.inspect(key))
	for _, secret := range secrets {
		if secret != "" && strings.Contains(shown, secret) {
			x.Errorf("State = %s has the secret %q", shown, secret)
		}
	}
}

// waitFor gives a new waiter with the label a position in the queue of key, which is held, and
// returns its name. It does nothing if the store has no queues.
func (x *fixture) waitFor(key, label string) (waiter string) {
	x.Helper()
	if x.queued == nil {
		return ""
	}
	waiter = labelled(label)
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
	x.Cleanup(func() { leaveQueue(x.Bubble, cancel) })
	if err := x.queue.WatchQueued(ctx, key, waiter, func() {}); err != nil {
		x.Fatalf("WatchQueued(%.60q): %v", key, err)
	}
	if res := x.askFor(key, waiter, false, labelled(label)); res.OK || res.Position == 0 {
		x.Fatalf("SetNXQueued(%.60q) for a waiter = %+v; want a position", key, res)
	}
	return waiter
}
