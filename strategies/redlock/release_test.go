package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestReleaseReturnsWhenAQuorumIsFreeAndIsRepeatedOnTheOtherNodes(t *testing.T) {
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
					t.Errorf("%d gone, %d down: %d nodes still have the token", gone, down, n)
				}
			})
		}
	}
}

func TestANodeThatFailsAfterTheReleaseIsDoneIsReleasedAgain(t *testing.T) {
	for _, ends := range []bool{true, false} { // whether the lease has Expires
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes), request()
			lease := mustAcquire(t, l, req)
			synctest.Wait()
			nodes[2].set("release", behaviour{hold: 50 * time.Millisecond, err: errDown}) // after the others have released
			if !ends {
				lease.Expires = time.Time{}
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			time.Sleep(60 * time.Millisecond)
			nodes[2].set("release", behaviour{})
			time.Sleep(time.Second)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d nodes still have the token", n)
			}
			time.Sleep(time.Minute)
		})
	}
}

func TestANodeThatHasNothingLeftIsNotReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		nodes[2].set("release", behaviour{err: errDown})
		time.AfterFunc(time.Millisecond, func() { nodes[2].store.Delete("k"); nodes[2].set("release", behaviour{}) })
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := nodes[2].count("release"); n > 3 {
			t.Errorf("released %d times", n)
		}
	})
}

func TestADeadNodeIsReleasedNoLongerThanItMayHoldTheLease(t *testing.T) {
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
		sent := nodes[0].count("release")
		time.Sleep(time.Hour)
		if n := nodes[0].count("release"); sent < 5 || n != sent {
			t.Errorf("released %d times, and %d an hour later", sent, n)
		}
	})
}

func TestANodeThatAFailedExtensionHasExtendedIsReleasedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		time.Sleep(9 * time.Second)
		nodes[1].set("extend", behaviour{err: errDown})
		nodes[2].set("extend", behaviour{err: errDown})
		_, err := l.Extend(t.Context(), lease, ttl)
		if err == nil {
			t.Fatal("extended")
		}
		nodes[0].set("release", behaviour{err: errDown}) // for 1.5 s
		time.AfterFunc(1500*time.Millisecond, func() { nodes[0].set("release", behaviour{}) })
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if nodes[0].holder() != "" {
			_, left, _ := nodes[0].store.Get("k")
			t.Errorf("node 1 is locked for %v more", left)
		}
		time.Sleep(time.Minute)
	})
}

func TestAReleaseThatFindsTheLeaseLostFreesTheOtherNodesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		c := locker.New(quorumOf(t, nodes, redlock.WithQuorum(3)), locker.WithTTL(ttl))
		lock, err := c.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		nodes[0].store.Delete("k")
		nodes[1].set("release", behaviour{err: errDown}) // for a moment
		if err := lock.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock = %v", err)
		}
		synctest.Wait()
		nodes[1].set("release", behaviour{})
		time.Sleep(ttl / 2)
		if nodes[1].holder() != "" {
			t.Error("node 2 is still locked, and with a quorum of 3 so is the lock")
		}
		time.Sleep(time.Minute)
	})
}

func TestANodeThatFailsWhenTheReleaseIsDoneIsReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		nodes[2].set("release", behaviour{after: 100 * time.Millisecond, err: errDown})
		took(t, 0, func() {
			if err := l.Release(t.Context(), lease); err != nil {
				t.Errorf("Release = %v", err)
			}
		})
		nodes[2].set("release", behaviour{})
		time.Sleep(time.Second)
		if nodes[2].holder() != "" {
			t.Errorf("node 3 is still locked after %d releases", nodes[2].count("release"))
		}
	})
}

func TestReleaseIsNotLongerThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		req.TTL = 50 * time.Millisecond
		lease := mustAcquire(t, l, req)
		for _, n := range nodes[:2] {
			n.set("release", behaviour{after: time.Minute})
		}
		left := time.Until(lease.Expires)
		took(t, left, func() { _ = l.Release(t.Context(), lease) })
		heal(nodes)
		time.Sleep(2 * time.Minute)
	})
}

// No node forgets its value. So many nodes fail for a moment that no quorum is left.
func TestAfterAMomentWithoutAQuorumDuringUnlockTheLockIsFreeBeforeItsTTL(t *testing.T) {
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

// After a lost reply a client library may ignore its ctx and wait on.
func TestANodeThatIsSilentAtTheLimitIsReleasedAgainBesideTheCallThatHangs(t *testing.T) {
	silent := func(n *node) { // the request is lost, and the call does not return for a minute
		n.set("release", behaviour{after: time.Minute, err: errDown})
		time.AfterFunc(time.Millisecond, func() { n.set("release", behaviour{}) })
	}
	t.Run("after Release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes), request()
			lease := mustAcquire(t, l, req)
			synctest.Wait()
			silent(nodes[2])
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			time.Sleep(redlock.DefaultNodeLimit + time.Millisecond)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d nodes still have the token", n)
			}
			time.Sleep(time.Hour)
			if n := nodes[2].count("release"); n != 2 {
				t.Errorf("released %d times; want 2", n)
			}
		})
	})
	t.Run("after an attempt that failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			for _, n := range nodes[:2] {
				mustAcquire(t, n, request())
			}
			silent(nodes[2])
			l, req := quorumOf(t, nodes), request()
			if _, err := l.Acquire(t.Context(), req); !errors.Is(err, locker.ErrHeld) {
				t.Fatal(err)
			}
			time.Sleep(redlock.DefaultNodeLimit + time.Millisecond)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d nodes still have the token", n)
			}
			time.Sleep(time.Hour)
		})
	})
}

// The node did not answer the attempt, nor the release. Its cleanup is answered before the grant
// arrives there, so it is repeated: one answer is not enough.
func TestACleanupOfANodeInDoubtIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{err: errDown})
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		nodes[2].set("release", behaviour{err: errDown})
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		heal(nodes)
		time.Sleep(300 * time.Millisecond) // the cleanup is answered
		nodes[2].store.Set("k", req.Token, req.TTL)
		time.Sleep(3 * time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have the token that arrived after the cleanup", n)
		}
		time.Sleep(time.Minute)
	})
}

// The release is not sent to a node that does not answer. The attempt is still under way there, and
// its grant arrives after the cleanup: whoever receives it releases it.
func TestAGrantOfANodeThatTheReleaseHasLeftOutIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{after: 5 * time.Second})
		lease := mustAcquire(t, l, req)
		nodes[2].set("extend", behaviour{err: errDown})
		lease, err := l.Extend(t.Context(), lease, req.TTL)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if n := nodes[2].count("release"); n == 0 {
			t.Error("the node was not cleaned up")
		}
		time.Sleep(2 * time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
		time.Sleep(time.Minute)
	})
}
