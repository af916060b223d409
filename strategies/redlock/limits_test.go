package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// no node forgets; three of five with a quorum of four are away for a moment.
func TestAMomentWithoutAQuorumDuringUnlockDoesNotLockUntilTheTTL(t *testing.T) {
	for _, q := range []struct{ n, w, away int }{{5, 4, 3}, {4, 3, 2}, {3, 3, 2}, {5, 5, 3}, {5, 3, 3}} {
		t.Run(fmt.Sprint(q), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(q.n)
				c := locker.New(quorumOf(t, nodes, redlock.WithQuorum(q.w)), locker.WithTTL(time.Minute))
				lock, err := c.Lock(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for _, n := range nodes[:q.away] {
					n.set("release", behaviour{err: errDown})
				}
				time.AfterFunc(200*time.Millisecond, func() {
					for _, n := range nodes[:q.away] {
						n.set("release", behaviour{})
					}
				})
				err = lock.Unlock(t.Context())
				time.Sleep(10 * time.Second)
				if again, err2 := c.TryLock(t.Context(), "k"); err2 != nil {
					t.Errorf("%d of %d: Unlock = %v; ten seconds later %v", q.w, q.n, err, err2)
				} else {
					_ = again.Unlock(t.Context())
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestAbandonIsNotLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		nodes[0].set("release", behaviour{after: time.Minute})
		for _, n := range nodes[1:] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		req.TTL = locker.MinTTL
		began := time.Now()
		_, _ = l.Acquire(t.Context(), req)
		if d := time.Since(began); d > 2*req.TTL {
			t.Errorf("a ttl of %v: %v", req.TTL, d)
		}
		time.Sleep(2 * time.Minute)
	})
}

type sleeper struct{}

func (sleeper) Identify(context.Context) (backends.Identity, error) {
	time.Sleep(time.Minute)
	return backends.Identity{}, errors.New("x")
}

func TestCheckNodesReturnsWithItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		took(t, time.Second, func() { err = backends.CheckNodes(ctx, sleeper{}, sleeper{}) })
		var found *backends.NodesError
		if !errors.As(err, &found) || len(found.Unreachable) != 2 {
			t.Errorf("CheckNodes = %v", err)
		}
		time.Sleep(time.Hour)
	})
}
