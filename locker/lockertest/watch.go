package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
)

var watchSentences = []sentence{
	{"Watch is active when it returns and wakes after Release, or matches errors.ErrUnsupported", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		woken, watching := x.watch(x.Context(), g.Key)
		x.release(g.Lease)
		for range rounds {
			if watching {
				answer(x, "a wake-up after Release", woken)
			}
			g = x.grant(g.Key, x.long)
			drain(woken)
			x.release(g.Lease)
		}
		if watching {
			answer(x, "a wake-up after Release", woken)
		}
	}},
	{"all watchers of a key wake, each for its own key", nil, func(x *fixture) {
		one, two := x.grant(x.key("one"), x.long), x.grant(x.key("two"), x.long)
		first, watching := x.watch(x.Context(), one.Key)
		second, _ := x.watch(x.Context(), one.Key)
		other, _ := x.watch(x.Context(), two.Key)
		if !watching {
			return
		}
		x.release(one.Lease)
		answer(x, "a wake-up of the first watcher", first)
		answer(x, "a wake-up of the second watcher", second)
		x.release(two.Lease)
		answer(x, "a wake-up of the watcher of the other key", other)
	}},
	{"a watch ends with its ctx", nil, func(x *fixture) {
		key := x.key("k")
		ctx, cancel := context.WithCancel(x.Context())
		ended, watching := x.watch(ctx, key)
		other, _ := x.watch(x.Context(), key)
		cancel()
		if !watching {
			return
		}
		quiet := 0
		for range 200 { // a wake-up may come late or without a reason
			drain(ended)
			drain(other)
			x.release(x.grant(key, x.long).Lease)
			answer(x, "a wake-up of the watch that goes on", other)
			time.Sleep(tick)
			select {
			case <-ended:
				quiet = 0
			default:
				if quiet++; quiet == 3 {
					return
				}
			}
		}
		x.Fatalf("the watch is still called after its ctx has ended")
	}},
	{"Watch with a ctx that is done returns the error of the ctx, or matches errors.ErrUnsupported", nil, func(x *fixture) {
		key := x.key("k")
		ctx, cancel := context.WithCancel(x.Context())
		cancel()
		err := answer(x, "Watch returns", x.async(func() error { return x.locker.Watch(ctx, key, "", func() {}) }))
		if !errors.Is(err, context.Canceled) && !(x.NoWatch && errors.Is(err, errors.ErrUnsupported)) {
			x.Fatalf("Watch: error %v", err)
		}
	}},
	{"Watch returns a permanent error of the store, or matches errors.ErrUnsupported", needs(faults), func(x *fixture) {
		x.beneath.Fault(Watch, backendtest.Permanent)
		err := x.locker.Watch(x.Context(), x.key("k"), "", func() {})
		if x.NoWatch && errors.Is(err, errors.ErrUnsupported) {
			return
		}
		x.wantPermanent("Watch", err)
	}},
}

// watch watches key. The channel holds one wake-up. watching is false if the harness has NoWatch.
func (x *fixture) watch(ctx context.Context, key string) (woken chan struct{}, watching bool) {
	x.Helper()
	woken = make(chan struct{}, 1)
	err := x.locker.Watch(ctx, key, "", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	switch {
	case x.NoWatch && !errors.Is(err, errors.ErrUnsupported):
		x.Fatalf("Watch: error %v; want errors.ErrUnsupported, because of NoWatch", err)
	case !x.NoWatch && err != nil:
		x.Fatalf("Watch: %v", err)
	}
	return woken, !x.NoWatch
}

func drain(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
