package redlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestALateGrantIsExtendedAndReleasedWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[3:] {
			n.set("acquire", behaviour{after: 200 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		lease := mustAcquire(t, l, req)
		if n := holding(nodes, req.Token); n != 3 {
			t.Fatalf("%d nodes have it", n)
		}
		time.Sleep(time.Second)
		if n := holding(nodes, req.Token); n != 5 {
			t.Fatalf("%d nodes have it in the end", n)
		}
		for _, n := range nodes[:2] {
			n.store.Delete("k")
		}
		if _, err := l.Extend(t.Context(), lease, 2*ttl); err != nil {
			t.Errorf("Extend with three of five = %v", err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have it after the release", n)
		}
	})
}

func TestAGrantThatComesAfterTheReleaseIsReleasedOnce(t *testing.T) {
	for after, releases := range map[time.Duration]int{50 * time.Millisecond: 1, time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			nodes[2].set("acquire", behaviour{after: after})
			l, req := quorumOf(t, nodes), request()
			lease := mustAcquire(t, l, req)
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d nodes have it", n)
			}
			if n := nodes[2].count("release"); n != releases {
				t.Errorf("a grant after %v was released %d times; want %d", after, n, releases)
			}
		})
	}
}

func TestExtendCountsOnlyNodesThatStillHoldIt(t *testing.T) {
	for gone := range 6 {
		for down := range 6 - gone {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(5)
				l := quorumOf(t, nodes)
				lease := mustAcquire(t, l, request())
				synctest.Wait()
				for i, n := range nodes {
					switch {
					case i < gone:
						n.store.Delete("k")
					case i < gone+down:
						n.set("extend", behaviour{err: errDown})
					}
				}
				time.Sleep(time.Second)
				extended, err := l.Extend(t.Context(), lease, ttl)
				switch {
				case gone+down <= 2:
					if err != nil || !extended.Expires.After(lease.Expires) {
						t.Errorf("%d gone, %d down: %v, %v", gone, down, extended, err)
					}
				case gone > 2 != errors.Is(err, locker.ErrLost), extended.Expires != lease.Expires, err == nil:
					t.Errorf("%d gone, %d down: %v, %v", gone, down, extended, err)
				case gone <= 2 && !errors.Is(err, errDown):
					t.Errorf("%d gone, %d down: %v does not say why", gone, down, err)
				}
				for i, n := range nodes {
					if i < gone && n.holder() != "" {
						t.Error("an extension brought the lease back")
					}
				}
			})
		}
	}
}

func TestExtendNeverMakesALeaseShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quorumOf(t, newNodes(3))
		lease := mustAcquire(t, l, request())
		extended, err := l.Extend(t.Context(), lease, ttl/2)
		if err != nil || !extended.Expires.Equal(lease.Expires) {
			t.Errorf("Extend = %v, %v; want %v", extended, err, lease.Expires)
		}
	})
}

func TestALongLeaseIsKeptByAnExtensionThatTakesLongerThanItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for _, n := range nodes {
			n.set("extend", behaviour{hold: 2 * locker.MinTTL})
		}
		extended, err := l.Extend(t.Context(), lease, locker.MinTTL)
		if err != nil || !extended.Expires.Equal(lease.Expires) {
			t.Errorf("Extend = %v, %v; want %v", extended, err, lease.Expires)
		}
	})
}

func TestReleaseIsDoneWhenAQuorumIsFreeAndTellsTheOthersAgain(t *testing.T) {
	for gone := range 6 {
		for down := range 6 - gone {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(5)
				l, req := quorumOf(t, nodes), request()
				lease := mustAcquire(t, l, req)
				synctest.Wait()
				for i, n := range nodes {
					switch {
					case i < gone:
						n.store.Delete("k")
					case i < gone+down:
						n.set("release", behaviour{err: errDown})
					}
				}
				err := l.Release(t.Context(), lease)
				switch {
				case gone > 2:
					if !errors.Is(err, locker.ErrLost) {
						t.Errorf("%d gone, %d down: %v; want ErrLost", gone, down, err)
					}
				case down <= 2:
					if err != nil {
						t.Errorf("%d gone, %d down: %v", gone, down, err)
					}
				case err == nil || errors.Is(err, locker.ErrLost):
					t.Errorf("%d gone, %d down: %v; want unknown", gone, down, err)
				}
				for _, n := range nodes {
					n.set("release", behaviour{})
				}
				time.Sleep(3 * time.Second)
				if n := holding(nodes, req.Token); err == nil && n != 0 {
					t.Errorf("%d gone, %d down: %d nodes have it still", gone, down, n)
				}
			})
		}
	}
}

func TestADeadNodeIsToldOfAReleaseNoLongerThanItMayHoldTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		nodes[0].set("release", behaviour{err: errDown})
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * ttl)
		told := nodes[0].count("release")
		time.Sleep(time.Hour)
		if n := nodes[0].count("release"); told < 5 || n != told {
			t.Errorf("told %d times, and %d an hour later", told, n)
		}
	})
}

func TestWatchIsActiveOnceAQuorumIs(t *testing.T) {
	for _, c := range []struct {
		refused, polling, slow int
		active                 bool
	}{
		{0, 0, 0, true}, {0, 0, 2, true}, {2, 0, 0, true}, {0, 2, 0, true}, {1, 1, 0, true}, {3, 0, 2, false}, {0, 3, 2, false}, {1, 2, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for i, n := range nodes {
				switch {
				case i < c.refused:
					n.set("watch", behaviour{err: errDown})
				case i < c.refused+c.polling:
					n.set("watch", behaviour{err: errors.ErrUnsupported})
				case i < c.refused+c.polling+c.slow:
					n.set("watch", behaviour{hold: time.Minute})
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			took(t, 0, func() { err = quorumOf(t, nodes).Watch(ctx, "k", func() {}) })
			polling := errors.Is(err, errors.ErrUnsupported)
			switch {
			case c.active != (err == nil), polling != (!c.active && c.refused == 0):
				t.Errorf("%+v: %v", c, err)
			case err != nil && !polling && !errors.Is(err, errDown):
				t.Errorf("%+v: %v does not say why", c, err)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestItWakesOnceForEachReleaseThatAQuorumHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		wakes := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := l.Watch(ctx, "k", func() { wakes++ }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for round := 1; round <= 20; round++ {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			for i, n := range nodes { // one after the other: it is free with the third
				if want := round - 1; i < 3 && wakes != want {
					t.Fatalf("round %d: woken %d times before %d nodes were free; want %d", round, wakes, i, want)
				}
				if err := n.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			if wakes != round {
				t.Fatalf("round %d: woken %d times", round, wakes)
			}
		}
		for range 9 { // two nodes are no quorum, however often they hint
			for _, n := range nodes[:2] {
				n.store.Set("k", "token", time.Minute)
				if _, err := n.store.DeleteIf(t.Context(), "k", "token"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if wakes != 20 {
			t.Errorf("woken %d times", wakes)
		}
	})
}

func TestWakesGoOnWhenNodesChangeTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		wakes := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := l.Watch(ctx, "k", func() { wakes++ }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for round := range 20 {
			for i := range 3 { // a different quorum each time; the others are down
				n := nodes[(round+i)%5]
				n.store.Set("k", "token", time.Minute)
				if _, err := n.store.DeleteIf(t.Context(), "k", "token"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if wakes < 20 {
			t.Errorf("woken %d times for 20 releases", wakes)
		}
	})
}

func TestFencedNumbersRiseWhicheverNodesTakePart(t *testing.T) {
	for _, q := range quorums {
		synctest.Test(t, func(t *testing.T) {
			stores := make([]backends.FencedStore, q.n)
			faults := make([]*backendtest.FaultFencedStore, q.n)
			for i := range stores {
				faults[i] = backendtest.FaultyFenced(memory.New())
				stores[i] = faults[i]
			}
			l, err := redlock.NewFenced(stores, redlock.WithQuorum(q.w))
			if err != nil {
				t.Fatal(err)
			}
			var numbers []uint64
			down := lockertest.Fault{Kind: lockertest.Fail}
			for round := range 60 {
				for i := range q.n - q.w { // others each time
					faults[(round+i)%q.n].Set(backendtest.All, down.Apply)
				}
				lease := mustAcquire(t, l, request())
				numbers = append(numbers, lease.Fence)
				if err := l.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				for _, f := range faults {
					f.Clear()
				}
				time.Sleep(time.Minute) // what the dead ones had left
			}
			if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) || numbers[0] == 0 {
				t.Errorf("%d of %d: %v", q.w, q.n, numbers)
			}
		})
	}
}

func TestFencedCostsOneRoundWhileTheNodesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]backends.FencedStore, 5)
		faults := make([]*backendtest.FaultFencedStore, 5)
		for i := range stores {
			faults[i] = backendtest.FaultyFenced(memory.New())
			stores[i] = faults[i]
		}
		l, err := redlock.NewFenced(stores)
		if err != nil {
			t.Fatal(err)
		}
		raised := func() (n int) {
			synctest.Wait()
			for _, f := range faults {
				n += f.Calls(backendtest.RaiseFence)
			}
			return n
		}
		one := func() {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 10 {
			one()
		}
		if n := raised(); n != 0 {
			t.Errorf("%d numbers raised", n)
		}
		fail := lockertest.Fault{Kind: lockertest.Fail}
		faults[0].Once(backendtest.SetNXFenced, fail.Apply)
		faults[1].Once(backendtest.SetNXFenced, fail.Apply)
		one()
		time.Sleep(time.Minute)
		one() // the first three to answer may be all that know
		if n := raised(); n > 4 {
			t.Errorf("%d numbers raised", n)
		}
	})
}

func TestNodesThatAreSlowToExtendAreAskedAboutTheLeaseAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[3:] {
			n.set("extend", behaviour{after: 100 * time.Millisecond}) // they read it when Extend has returned
		}
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		if _, err := l.Extend(t.Context(), lease, 2*ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for i, n := range nodes {
			if _, left, _ := n.store.Get("k"); left < ttl {
				t.Errorf("node %d: %v left", i+1, left)
			}
		}
	})
}

// TestSoManyNodesMayForgetAndNoMore is the table of the package comment: the lock is held on w nodes while the others are
// down; then those are back, and some of the w forget.
func TestSoManyNodesMayForgetAndNoMore(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for w := n/2 + 1; w <= n; w++ {
			for forget := range w + 1 {
				synctest.Test(t, func(t *testing.T) {
					nodes := newNodes(n)
					for _, down := range nodes[w:] {
						down.set("acquire", behaviour{err: errDown})
					}
					l := quorumOf(t, nodes, redlock.WithQuorum(w))
					mustAcquire(t, l, request())
					synctest.Wait()
					for _, down := range nodes[w:] {
						down.set("acquire", behaviour{})
					}
					for _, forgetful := range nodes[:forget] {
						forgetful.store.Delete("k")
					}
					_, err := l.Acquire(t.Context(), request())
					if overlap, tolerated := err == nil, forget <= 2*w-n-1; overlap == tolerated {
						t.Errorf("%d of %d, %d forget: %v", w, n, forget, err)
					}
				})
			}
		}
	}
}
