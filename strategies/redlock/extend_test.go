package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

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
						t.Error("an extension has resurrected the lease")
					}
				}
			})
		}
	}
}

func TestExtendDoesNotCountANodeThatIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]*memory.Store, 3)
		faults := make([]*backendtest.Faults, 3)
		nodes := make([]locker.Locker, 3)
		for i := range nodes {
			stores[i] = memory.New()
			faults[i] = new(backendtest.Faults)
			nodes[i] = single.New(faults[i].Store(stores[i]))
		}
		mine, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		others := make([]locker.Locker, 3) // of another process
		for i := range others {
			others[i] = single.New(stores[i])
		}
		theirs, _ := redlock.New(others)

		// Node 3 stores the token and its answer is lost. The cleanup can't reach it until the
		// extension.
		faults[2].Once(backendtest.SetNX, func(ctx context.Context, call func(context.Context) error) error {
			_ = call(ctx)
			return errDown
		})
		faults[2].Set(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error { return errDown })
		lease := mustAcquire(t, mine, request())
		time.Sleep(ttl / 3)
		// Node 2 can't be reached from now on; it forgets nothing.
		faults[1].Set(backendtest.All, func(context.Context, func(context.Context) error) error { return errDown })
		faults[2].Clear()
		extended, err := mine.Extend(t.Context(), lease, ttl)
		t.Logf("Extend = %v, %v", time.Until(extended.Expires), err)
		time.Sleep(time.Until(lease.Expires) + 200*time.Millisecond) // the lease on node 2 has ended
		other, err := theirs.Acquire(t.Context(), request())
		if err == nil && time.Now().Before(extended.Expires) {
			t.Errorf("two holders: our lease lasts for %v more, theirs for %v", time.Until(extended.Expires), time.Until(other.Expires))
		}
		time.Sleep(time.Minute)
	})
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

func TestAnExtensionThatTakesLongerThanItsTTLDoesNotShortenALongLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for _, n := range nodes {
			n.set("extend", behaviour{hold: 2 * contract.MinTTL})
		}
		extended, err := l.Extend(t.Context(), lease, contract.MinTTL)
		if err != nil || !extended.Expires.Equal(lease.Expires) {
			t.Errorf("Extend = %v, %v; want %v", extended, err, lease.Expires)
		}
	})
}

func TestSlowNodesExtendTheLeaseThatWasGivenToExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[3:] {
			n.set("extend", behaviour{after: 100 * time.Millisecond}) // these nodes read the lease after Extend has returned
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

func TestALossIsReportedAtOnceAndTheErrorNamesSilentNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for _, n := range nodes[:3] {
			n.store.Delete("k")
		}
		for _, n := range nodes[3:] {
			n.set("extend", behaviour{after: time.Hour})
			n.set("release", behaviour{after: time.Hour})
		}
		took(t, 0, func() {
			if _, err := l.Extend(t.Context(), lease, ttl); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Extend = %v", err)
			}
			if err := l.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Release = %v", err)
			}
		})
		lease = mustAcquire(t, l, request())
		synctest.Wait()
		for _, n := range nodes[:3] {
			n.set("extend", behaviour{after: time.Hour})
			n.set("release", behaviour{after: time.Hour})
		}
		_, err := l.Extend(t.Context(), lease, ttl)
		wantQuorum(t, err, "0 of 5 nodes granted, 3 needed: node 1: no answer within 500ms; node 2")
		wantQuorum(t, l.Release(t.Context(), lease), "0 of 5 nodes granted, 3 needed: node 1: no answer within 500ms; node 2")
		heal(nodes)
		time.Sleep(3 * time.Hour)
	})
}

func TestExtendAndReleaseReturnAsSoonAsAQuorumIsImpossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for i, n := range nodes[:4] {
			b := behaviour{err: errDown}
			if i == 3 {
				b = behaviour{after: time.Minute}
			}
			n.set("extend", b)
			n.set("release", b)
		}
		took(t, 0, func() { _, _ = l.Extend(t.Context(), lease, ttl) })
		took(t, 0, func() { _ = l.Release(t.Context(), lease) })
		heal(nodes)
		time.Sleep(2 * time.Minute)
	})
}

// As few nodes as the quorum can do without were evicted: then it is another loss that cost the lease.
func TestALossIsToldAsEvictedIfEvictionsAloneLeftNoQuorum(t *testing.T) {
	for evicted, want := range map[int]locker.LostReason{2: locker.LostQuorum, 3: locker.LostEvicted} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			l := quorumOf(t, nodes)
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			for i, n := range nodes[:3] {
				if i < evicted {
					beneath.Evict(t, n.store, "k", "ann")
				} else {
					n.store.Delete("k")
				}
			}
			_, extended := l.Extend(t.Context(), lease, ttl)
			for call, err := range map[string]error{"Extend": extended, "Release": l.Release(t.Context(), lease)} {
				lost, _ := errors.AsType[*locker.LostError](err)
				by, named := errors.AsType[*locker.EvictedError](err)
				if lost == nil || lost.Reason != want || !named || by.By != "ann" || !strings.Contains(err.Error(), `node 1: evicted by "ann"`) {
					t.Errorf("%d nodes: %s = %v; want %s", evicted, call, err, want)
				}
				if _, votes := errors.AsType[*redlock.QuorumError](err); !votes {
					t.Errorf("%d nodes: %s = %v; want the votes", evicted, call, err)
				}
			}
		})
	}
}

func TestALossHasTheReasonQuorumAndTheVotesOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for _, n := range nodes[:3] {
			n.store.Delete("k")
		}
		_, extend := l.Extend(t.Context(), lease, ttl)
		for op, err := range map[string]error{"Extend": extend, "Release": l.Release(t.Context(), lease)} {
			var lost *locker.LostError
			var q *redlock.QuorumError
			if !errors.As(err, &lost) || lost.Reason != locker.LostQuorum || !errors.As(err, &q) || len(q.Votes) != 5 {
				t.Errorf("%s = %v", op, err)
			}
			if errors.Is(err, locker.ErrHeld) || !errors.Is(err, locker.ErrLost) {
				t.Errorf("%s = %v; want ErrLost and no ErrHeld", op, err)
			}
		}
	})
}
