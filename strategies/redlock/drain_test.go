package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// Node 3 fails or is silent, and the quorum cleans up there in the background.
func TestDrainWaitsUntilTheQuorumHasCleanedUp(t *testing.T) {
	const down = 5 * time.Second // the node does not answer releases
	others := func(t *testing.T, nodes []*node) {
		for _, n := range nodes[:2] {
			mustAcquire(t, n, request())
		}
	}
	lost := behaviour{err: errDown}
	for name, c := range map[string]struct {
		make func(t *testing.T, nodes []*node)
		held bool
	}{
		"after an attempt that failed": {make: func(t *testing.T, nodes []*node) {
			others(t, nodes)
			nodes[2].set("release", lost)
		}},
		"after an attempt that failed, with an unknown outcome": {make: func(t *testing.T, nodes []*node) {
			others(t, nodes)
			nodes[2].set("acquire", lost)
			nodes[2].set("release", lost)
		}},
		"after an attempt that failed, with an unknown outcome that came late": {make: func(t *testing.T, nodes []*node) {
			others(t, nodes)
			nodes[2].set("acquire", behaviour{after: 200 * time.Millisecond, err: errDown})
			nodes[2].set("release", lost)
		}},
		"after a grant that came late": {make: func(t *testing.T, nodes []*node) {
			others(t, nodes)
			nodes[2].set("acquire", behaviour{after: 200 * time.Millisecond})
			nodes[2].set("release", lost)
		}},
		"after a release that failed": {held: true, make: func(_ *testing.T, nodes []*node) {
			nodes[2].set("release", lost)
		}},
		"after a release that is not answered": {held: true, make: func(_ *testing.T, nodes []*node) {
			nodes[2].set("release", behaviour{after: time.Minute, err: errDown})
		}},
		"after a release that is answered late": {held: true, make: func(_ *testing.T, nodes []*node) {
			nodes[2].set("release", behaviour{after: 100 * time.Millisecond, err: errDown})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				l := quorumOf(t, nodes)
				locks := locker.New(l, locker.WithTTL(time.Minute))
				c.make(t, nodes)
				began := time.Now()
				time.AfterFunc(down, func() { nodes[2].set("release", behaviour{}) })
				lock, err := locks.TryLock(t.Context(), "k")
				if (err == nil) != c.held {
					t.Fatal(err)
				}
				if c.held {
					if err := lock.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := locks.Drain(t.Context()); err != nil || time.Since(began) < down {
					t.Errorf("Drain = %v after %v; node 3 answers after %v", err, time.Since(began), down)
				}
				if token := nodes[2].holder(); token != "" {
					t.Error("node 3 has a token after Drain")
				}
				time.Sleep(2 * time.Minute)
				if n := redlock.Flying(l); n != 0 {
					t.Errorf("%d attempts are remembered", n)
				}
			})
		})
	}
}

// Node 5 has the token of the first process, and the Transfer does not reach it.
func TestDrainWaitsForWhatATransferHasLeft(t *testing.T) {
	for name, missed := range map[string]behaviour{
		"not sent": {err: unsent{}}, "lost": {err: errDown}, "lost after some time": {after: time.Second, err: errDown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const down = 5 * time.Second
				nodes := newNodes(5)
				first := locker.New(quorumOf(t, nodes), locker.WithTTL(time.Minute))
				second := locker.New(quorumOf(t, nodes), locker.WithTTL(time.Minute))
				lock, err := first.TryLock(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				ticket, err := lock.Transfer(t.Context(), time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				nodes[4].set("transfer", missed)
				nodes[4].set("release", behaviour{err: errDown})
				lock, err = second.Resume(t.Context(), ticket)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				time.AfterFunc(down, func() { nodes[4].set("release", behaviour{}) })
				if err := second.Drain(t.Context()); err != nil || time.Since(began) < down {
					t.Errorf("Drain = %v after %v; node 5 answers after %v", err, time.Since(began), down)
				}
				if nodes[4].holder() != "" {
					t.Error("node 5 has a token after Drain")
				}
				if err := lock.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
