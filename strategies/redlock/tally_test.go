package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestALeaseAndAnErrorCountTheNodesThatGranted(t *testing.T) {
	for down := range 4 {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for _, n := range nodes[:down] {
				n.set("acquire", behaviour{err: errDown})
			}
			lease, err := quorumOf(t, nodes).Acquire(t.Context(), request())
			if down <= 2 {
				if err != nil || lease.Quorum != (locker.Quorum{Granted: 3, Size: 5}) { // decided at the third
					t.Errorf("%d down: %+v, %v", down, lease.Quorum, err)
				}
				return
			}
			var q *redlock.QuorumError
			if !errors.As(err, &q) || q.Quorum().Size != 5 || q.Quorum().Granted > 2 {
				t.Errorf("%d down: %v", down, err)
			}
		})
	}
}

func TestALossSaysThatItIsTheQuorumsAndWhatTheNodesSaid(t *testing.T) {
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
