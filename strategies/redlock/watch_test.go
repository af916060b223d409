package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestWatchIsActiveOnceAQuorumOfWatchesIs(t *testing.T) {
	for _, c := range []struct {
		denied, polling, slow int
		active                bool
	}{
		{0, 0, 0, true}, {0, 0, 2, true}, {2, 0, 0, true}, {0, 2, 0, true}, {1, 1, 0, true}, {3, 0, 2, false}, {0, 3, 2, false}, {1, 2, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for i, n := range nodes {
				switch {
				case i < c.denied:
					n.set("watch", behaviour{err: errDown})
				case i < c.denied+c.polling:
					n.set("watch", behaviour{err: errors.ErrUnsupported})
				case i < c.denied+c.polling+c.slow:
					n.set("watch", behaviour{hold: time.Minute})
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			took(t, 0, func() { err = quorumOf(t, nodes).Watch(ctx, "k", "", func() {}) })
			polling := errors.Is(err, errors.ErrUnsupported)
			switch {
			case c.active != (err == nil), polling != (!c.active && c.denied == 0):
				t.Errorf("%+v: %v", c, err)
			case err != nil && !polling && !errors.Is(err, errDown):
				t.Errorf("%+v: %v does not say why", c, err)
			}
			heal(nodes)
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestAWatchEndsWithItsCtxWhileNodesAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.set("watch", behaviour{after: time.Hour})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took(t, time.Second, func() {
			if err := quorumOf(t, nodes).Watch(ctx, "k", "", func() {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Watch = %v", err)
			}
		})
		heal(nodes)
		time.Sleep(2 * time.Hour)
	})
}

func TestAWatchThatFailsEndsTheWatchesOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		nodes[1].set("watch", behaviour{err: errDown})
		nodes[2].set("watch", behaviour{err: errDown})
		w := &watchCtx{node: nodes[0]}
		all := lockers(nodes)
		all[0] = w
		l, _ := redlock.New(all)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := l.Watch(ctx, "k", "", func() {})
		synctest.Wait()
		if err == nil || w.ctx.Err() == nil {
			t.Errorf("Watch = %v, and the watch of node 1 has not ended", err)
		}
	})
}

type watchCtx struct {
	*node
	ctx context.Context
}

func (w *watchCtx) Watch(ctx context.Context, key, waiter string, wake func()) error {
	w.ctx = ctx
	return w.node.Watch(ctx, key, waiter, wake)
}

// watch counts the wake-ups of a watch on key "k".
func watch(ctx context.Context, t *testing.T, nodes []*node) (wakes *atomic.Int32) {
	t.Helper()
	wakes = new(atomic.Int32)
	if err := quorumOf(t, nodes).Watch(ctx, "k", "", func() { wakes.Add(1) }); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return wakes
}

// wakeUp makes one node after the other report a release.
func wakeUp(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.store.Set("k", "token", time.Minute)
		if _, err := n.store.DeleteIf(t.Context(), "k", "token"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWatchWakesOnceForEachReleaseThatAQuorumReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		wakes, l := watch(t.Context(), t, nodes), quorumOf(t, nodes)
		for round := int32(1); round <= 20; round++ {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			for i, n := range nodes { // one after the other: the lock is free with the third
				if want := round - 1; i < 3 && wakes.Load() != want {
					t.Fatalf("round %d: woken %d times before %d nodes were free; want %d", round, wakes.Load(), i, want)
				}
				if err := n.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			if wakes.Load() != round {
				t.Fatalf("round %d: woken %d times", round, wakes.Load())
			}
		}
		time.Sleep(time.Second)
		for range 9 { // two nodes are no quorum, however many wake-ups they send
			wakeUp(t, nodes[:2]...)
		}
		if wakes.Load() != 20 {
			t.Errorf("woken %d times", wakes.Load())
		}
	})
}

func TestOnlyOneWakeUpOfANodeIsAnEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		wakes := watch(t.Context(), t, nodes)
		wakeUp(t, nodes[0], nodes[1], nodes[2]) // the last is an echo
		wakeUp(t, nodes[2], nodes[0])           // the next release, at once
		if wakes.Load() != 2 {
			t.Errorf("woken %d times for two releases", wakes.Load())
		}
		time.Sleep(time.Minute)
		if wakes.Load() != 2 {
			t.Errorf("woken %d times a minute later; want 2", wakes.Load())
		}
	})
}

func TestAWakeUpThatOnlyLooksLikeAnEchoWakesALittleLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		ctx, cancel := context.WithCancel(t.Context())
		wakes := watch(ctx, t, nodes)
		for range 3 {
			wakes.Store(0)
			wakeUp(t, nodes[0], nodes[1]) // the third node is not in the quorum
			wakeUp(t, nodes[1], nodes[2]) // the next release follows at once; now the first node is not in it
			time.Sleep(100 * time.Millisecond)
			if wakes.Load() != 2 {
				t.Errorf("woken %d times for two releases", wakes.Load())
			}
			time.Sleep(time.Minute)
			if wakes.Load() != 2 {
				t.Errorf("woken %d times a minute later; want 2", wakes.Load())
			}
		}
		wakeUp(t, nodes[0], nodes[1])
		wakeUp(t, nodes[1], nodes[2])
		wakes.Store(0)
		cancel()
		time.Sleep(time.Minute)
		if wakes.Load() != 0 {
			t.Error("woken after the end of the ctx")
		}
	})
}

func TestWakeUpsThatComeFarApartStillWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		wakes := watch(t.Context(), t, nodes)
		wakeUp(t, nodes[0])
		time.Sleep(time.Minute)
		wakeUp(t, nodes[1])
		if wakes.Load() != 0 {
			t.Error("woken although the first wake-up may be about another release")
		}
		time.Sleep(100 * time.Millisecond)
		if wakes.Load() != 1 {
			t.Errorf("woken %d times", wakes.Load())
		}
	})
}

func TestEachReleaseWakesWhicheverNodesMakeTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		wakes := watch(t.Context(), t, nodes)
		for round := range 20 {
			for i := range 3 { // a different quorum each time; the others are down
				wakeUp(t, nodes[(round+i)%5])
			}
			time.Sleep(time.Second)
		}
		if wakes.Load() < 20 {
			t.Errorf("woken %d times for 20 releases", wakes.Load())
		}
	})
}

func TestAWakeUpDoesNotCountForALaterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		var at []int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		free := 0
		if err := l.Watch(ctx, "k", "", func() { at = append(at, free) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// Another caller's attempt was granted by one node, long ago.
		wakeUp(t, nodes[0])
		time.Sleep(time.Minute)
		for range 5 {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			for i, n := range []*node{nodes[1], nodes[0], nodes[2]} {
				free = i + 1
				if err := n.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		for _, n := range at {
			if n < 2 {
				t.Fatalf("woken when %v nodes were free", at)
			}
		}
	})
}
