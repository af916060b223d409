package backendtest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

func watching(not bool) []sentence {
	if not {
		return noWatchSentences
	}
	return watchSentences
}

var watchSentences = []sentence{
	{"Watch is active when it returns: a DeleteIf after it wakes", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		w := x.watch(x.Context(), key)
		x.remove(key, "mine")
		x.wantWake(w)
	}},
	{"Watch wakes at every deletion, not only at the first", func(x *fixture) {
		key := x.key("k")
		w := x.watch(x.Context(), key) // of a key that is still free
		for range rounds {
			x.release(key, w)
		}
	}},
	{"all who watch a key wake", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		first, second := x.watch(x.Context(), key), x.watch(x.Context(), key)
		x.remove(key, "mine")
		x.wantWake(first)
		x.wantWake(second)
	}},
	{"those who watch different keys wake for their own", func(x *fixture) {
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
	{"the end of a watch leaves others on its key alone", func(x *fixture) {
		key := x.key("k")
		first := x.watch(x.Context(), key)
		ctx, cancel := context.WithCancel(x.Context())
		ended, last := x.watch(ctx, key), x.watch(x.Context(), key)
		cancel()
		x.fallsSilent(key, ended, first) // so that what the store does about the end is known to be done
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
	{"a key may hold any text: it is watched like any other", func(x *fixture) {
		for _, key := range x.oddKeys() {
			x.release(key, x.watch(x.Context(), key))
		}
	}},
	{"Watch with a ctx that is already done returns its error", func(x *fixture) {
		key := x.key("k")
		x.done("Watch", func(ctx context.Context) error { return x.store.Watch(ctx, key, func() {}) })
	}},
}

var noWatchSentences = []sentence{
	{"a store that cannot watch says so", func(x *fixture) {
		key := x.key("k")
		if err := x.store.Watch(x.Context(), key, func() {}); !errors.Is(err, errors.ErrUnsupported) {
			x.Fatalf("Watch: error %v; want errors.ErrUnsupported", err)
		}
	}},
}

// wakes is what one watch was told.
type wakes struct {
	signal chan struct{} // holds one: some wakes since it was last received from
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
		x.Fatalf("no wake within %v of the deletion", patience)
	}
}

// release takes key and lets go of it, which must wake w.
func (x *fixture) release(key string, w *wakes) {
	x.Helper()
	x.grant(key, "mine", x.long)
	select {
	case <-w.signal: // of something earlier
	default:
	}
	x.remove(key, "mine")
	x.wantWake(w)
}

// fallsSilent checks that ended is not told of deletions any more. A wake may come late or for nothing, so it is given
// time until it has slept through three deletions in a row that woke other.
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
