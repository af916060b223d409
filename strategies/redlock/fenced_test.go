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
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestFencedNumbersRiseWhicheverNodesTakePart(t *testing.T) {
	for _, q := range quorums {
		synctest.Test(t, func(t *testing.T) {
			stores := make([]backends.FencedStore, q.n)
			faults := make([]*backendtest.Faults, q.n)
			for i := range stores {
				faults[i] = new(backendtest.Faults)
				stores[i] = faults[i].Fenced(memory.New())
			}
			l, err := redlock.NewFenced(stores, redlock.WithQuorum(q.w))
			if err != nil {
				t.Fatal(err)
			}
			var numbers []uint64
			for round := range 60 {
				for i := range q.n - q.w { // different nodes each time
					faults[(round+i)%q.n].Set(backendtest.All, backendtest.Fail)
				}
				lease := mustAcquire(t, l, request())
				numbers = append(numbers, lease.Fence)
				if err := l.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				for _, f := range faults {
					f.Clear()
				}
				time.Sleep(time.Minute) // the values on the dead nodes end
			}
			if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) || numbers[0] == 0 {
				t.Errorf("%d of %d: %v", q.w, q.n, numbers)
			}
		})
	}
}

func TestAFencedGrantTakesOneRoundWhileTheNodesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]backends.FencedStore, 5)
		faults := make([]*backendtest.Faults, 5)
		for i := range stores {
			faults[i] = new(backendtest.Faults)
			stores[i] = faults[i].Fenced(memory.New())
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
			t.Errorf("%d calls of RaiseFence; want none", n)
		}
		faults[0].Once(backendtest.SetNXFenced, backendtest.Fail)
		faults[1].Once(backendtest.SetNXFenced, backendtest.Fail)
		one()
		time.Sleep(time.Minute)
		one() // the first three to answer may be all nodes that know the number
		if n := raised(); n > 4 {
			t.Errorf("%d calls of RaiseFence; want 4 at most", n)
		}
	})
}

func TestOnlyNodesThatHaveLandedMakeAQuorum(t *testing.T) {
	down := func(context.Context, func(context.Context) error) error { return errDown }
	for name, c := range map[string]struct {
		counters [3]int // the counters at the start; the third node answers last
		raise    func(s *memory.Store) backendtest.Fault
		held     bool // the third node has another holder
		fence    uint64
	}{
		"raised":                      {counters: [3]int{4, 2, 0}, held: true, fence: 5},
		"raise fails, last is held":   {counters: [3]int{4, 2, 0}, raise: func(*memory.Store) backendtest.Fault { return down }, held: true},
		"raise fails, last is equal":  {counters: [3]int{4, 2, 4}, raise: func(*memory.Store) backendtest.Fault { return down }, fence: 5},
		"raise fails, last is raised": {counters: [3]int{4, 2, 1}, raise: func(*memory.Store) backendtest.Fault { return down }, fence: 5},
		"raise fails, last is ahead":  {counters: [3]int{4, 2, 9}, raise: func(*memory.Store) backendtest.Fault { return down }},
		"overtaken, last is held": {counters: [3]int{4, 2, 0}, held: true, raise: func(s *memory.Store) backendtest.Fault {
			return func(ctx context.Context, call func(context.Context) error) error {
				s.Set("k", "theirs", time.Minute)
				return call(ctx)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores, mem := make([]backends.FencedStore, 3), make([]*memory.Store, 3)
				for i := range stores {
					mem[i] = memory.New()
					for range c.counters[i] {
						_, _ = mem[i].SetNXFenced(t.Context(), "k", "x", ttl)
						_, _ = mem[i].DeleteIf(t.Context(), "k", "x")
					}
					f := new(backendtest.Faults)
					if i == 1 && c.raise != nil {
						f.Set(backendtest.RaiseFence, c.raise(mem[i]))
					}
					if i == 2 {
						f.Set(backendtest.SetNXFenced, func(ctx context.Context, call func(context.Context) error) error {
							time.Sleep(10 * time.Millisecond)
							return call(ctx)
						})
					}
					stores[i] = f.Fenced(mem[i])
				}
				if c.held {
					mem[2].Set("k", "theirs", time.Minute)
				}
				l, err := redlock.NewFenced(stores)
				if err != nil {
					t.Fatal(err)
				}
				req := request()
				lease, err := l.Acquire(t.Context(), req)
				if lease.Fence != c.fence || (err == nil) != (c.fence != 0) {
					t.Errorf("Acquire = %v, %v; want fence %d", lease, err, c.fence)
				}
				if err == nil {
					if err := l.Release(t.Context(), lease); err != nil && !errors.Is(err, locker.ErrLost) {
						t.Error(err)
					}
				}
				time.Sleep(5 * time.Second)
				for i, m := range mem {
					if v, _, _ := m.Get("k"); v == req.Token {
						t.Errorf("node %d still has the token", i+1)
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestAGrantWaitsForNodesWhoseCounterIsBeingRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]backends.FencedStore, 5)
		for i, counter := range []int{4, 2, 2, 0, 0} {
			s := memory.New()
			for range counter {
				_, _ = s.SetNXFenced(t.Context(), "k", "x", ttl)
				_, _ = s.DeleteIf(t.Context(), "k", "x")
			}
			if i > 2 {
				s.Set("k", "theirs", time.Minute)
			}
			f := new(backendtest.Faults)
			f.Set(backendtest.RaiseFence, func(ctx context.Context, call func(context.Context) error) error {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				return call(ctx)
			})
			stores[i] = f.Fenced(s)
		}
		l, err := redlock.NewFenced(stores)
		if err != nil {
			t.Fatal(err)
		}
		if lease := mustAcquire(t, l, request()); lease.Fence != 5 {
			t.Errorf("fence %d; want 5", lease.Fence)
		}
		time.Sleep(time.Minute)
	})
}

func TestARaiseThatFailsCountsAsAFailureOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]backends.FencedStore, 5)
		mem := make([]*memory.Store, 5)
		faults := make([]*backendtest.Faults, 5)
		for i := range stores {
			mem[i] = memory.New()
			faults[i] = new(backendtest.Faults)
			stores[i] = faults[i].Fenced(mem[i])
		}
		// node 1 is ahead
		for range 3 {
			_, _ = mem[0].SetNXFenced(t.Context(), "k", "x", ttl)
			_, _ = mem[0].DeleteIf(t.Context(), "k", "x")
		}
		fail := func(context.Context, func(context.Context) error) error { return errDown }
		later := func(ctx context.Context, call func(context.Context) error) error {
			time.Sleep(time.Millisecond)
			return errDown
		}
		faults[1].Set(backendtest.RaiseFence, fail)
		faults[2].Set(backendtest.RaiseFence, fail)
		mem[3].Set("k", "theirs", time.Minute)
		faults[4].Set(backendtest.SetNXFenced, later) // fails after the others have answered
		l, err := redlock.NewFenced(stores)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(t.Context(), request())
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("%v matches ErrHeld, although three of five nodes failed", err)
		}
		time.Sleep(time.Minute)
	})
}
