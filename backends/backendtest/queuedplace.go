package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

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
