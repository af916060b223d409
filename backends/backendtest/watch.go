package backendtest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

func watching(noWatch bool) []sentence {
	if noWatch {
		return noWatchSentences
	}
	return watchSentences
}

var watchSentences = []sentence{
	{"Watch is active when it returns: the next DeleteIf wakes the watcher", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		w := x.watch(x.Context(), key)
		x.remove(key, "mine")
		x.wantWake(w)
	}},
	{"every DeleteIf wakes the watchers, not only the first", func(x *fixture) {
		key := x.key("k")
		w := x.watch(x.Context(), key) // the key is still free
		for range rounds {
			x.release(key, w)
		}
	}},
	{"a DeleteIf wakes all watchers of the key", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		first, second := x.watch(x.Context(), key), x.watch(x.Context(), key)
		x.remove(key, "mine")
		x.wantWake(first)
		x.wantWake(second)
	}},
	{"watchers of different keys each wake for their own key", func(x *fixture) {
		one, two := x.key("one"), x.key("two")
		x.grant(one, "mine", x.long)
		x.grant(two, "mine", x.long)
		first, second := x.watch(x.Context(), one), x.watch(x.Context(), two)
		x.remove(two, "mine")
		x.wantWake(second)
		x.remove(one, "mine")
		x.wantWake(first)
	}},
	{"a watch ends with its ctx", func(x *fixture) {
		key := x.key("k")
		ctx, cancel := context.WithCancel(x.Context())
		ended, other := x.watch(ctx, key), x.watch(x.Context(), key)
		x.release(key, other)
		cancel()
		x.fallsSilent(key, ended, other)
	}},
	{"the end of a watch leaves other watches of its key alone", func(x *fixture) {
		key := x.key("k")
		first := x.watch(x.Context(), key)
		ctx, cancel := context.WithCancel(x.Context())
		ended, last := x.watch(ctx, key), x.watch(x.Context(), key)
		cancel()
		x.fallsSilent(key, ended, first) // then the store has dealt with the end
		x.release(key, first)
		x.release(key, last)
	}},
	{"a key can be watched again after a watch has ended", func(x *fixture) {
		key := x.key("k")
		for range rounds {
			ctx, cancel := context.WithCancel(x.Context())
			x.release(key, x.watch(ctx, key))
			cancel()
		}
	}},
	{"a key may be any text, and Watch treats it like any other key", func(x *fixture) {
		for _, key := range x.oddKeys() {
			x.release(key, x.watch(x.Context(), key))
		}
	}},
	{"Watch with a ctx that is done returns the error of the ctx", func(x *fixture) {
		key := x.key("k")
		x.done("Watch", func(ctx context.Context) error { return x.store.Watch(ctx, key, func() {}) })
	}},
}

var noWatchSentences = []sentence{
	{"Watch of a store that cannot watch matches errors.ErrUnsupported", func(x *fixture) {
		key := x.key("k")
		if err := x.store.Watch(x.Context(), key, func() {}); !errors.Is(err, errors.ErrUnsupported) {
			x.Fatalf("Watch: error %v; want errors.ErrUnsupported", err)
		}
	}},
}

// wakes counts the wake-ups of one watch.
type wakes struct {
	signal chan struct{} // holds one, if there was a wake-up since the last receive
	count  atomic.Int64
}

func newWakes() *wakes { return &wakes{signal: make(chan struct{}, 1)} }

func (w *wakes) wake() {
	w.count.Add(1)
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (x *fixture) watch(ctx context.Context, key string) *wakes {
	x.Helper()
	w := newWakes()
	if err := x.store.Watch(ctx, key, w.wake); err != nil {
		x.Fatalf("Watch(%.60q): %v", key, err)
	}
	return w
}

func (x *fixture) wantWake(w *wakes) {
	x.Helper()
	select {
	case <-w.signal:
	case <-time.After(patience):
		x.Fatalf("no wake-up within %v of the deletion", patience)
	}
}

// release takes and releases key, which must wake w.
func (x *fixture) release(key string, w *wakes) {
	x.Helper()
	x.grant(key, "mine", x.long)
	select {
	case <-w.signal: // an earlier wake-up
	default:
	}
	x.remove(key, "mine")
	x.wantWake(w)
}

// fallsSilent checks that deletions do not wake ended any more. A wake-up may come late or without
// a reason. So the check passes at the third deletion in a row that wakes other and not ended.
func (x *fixture) fallsSilent(key string, ended, other *wakes) {
	x.Helper()
	quiet := 0
	for range 200 {
		before := ended.count.Load()
		x.release(key, other)
		time.Sleep(time.Millisecond)
		if ended.count.Load() != before {
			quiet = 0
			continue
		}
		if quiet++; quiet == 3 {
			return
		}
	}
	x.Fatalf("the watch is still called after its ctx has ended")
}
