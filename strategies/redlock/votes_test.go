package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestALossIsToldAtOnceAndSilenceIsNamed(t *testing.T) {
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
		time.Sleep(3 * time.Hour)
	})
}

func TestANodeThatFailsAfterTheReleaseIsDoneIsToldAgain(t *testing.T) {
	for _, ends := range []bool{true, false} { // whether the lease says when
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes), request()
			lease := mustAcquire(t, l, req)
			synctest.Wait()
			nodes[2].set("release", behaviour{hold: 50 * time.Millisecond, err: errDown}) // when the others have done it
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
				t.Errorf("%d nodes have it still", n)
			}
			time.Sleep(time.Minute)
		})
	}
}

func TestANodeThatHasNothingLeftIsNotToldAgain(t *testing.T) {
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
			t.Errorf("told %d times", n)
		}
	})
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
			if err := quorumOf(t, nodes).Watch(ctx, "k", func() {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Watch = %v", err)
			}
		})
		time.Sleep(2 * time.Hour)
	})
}

func TestOnlyOneHintOfANodeIsAnEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		wakes := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := quorumOf(t, nodes).Watch(ctx, "k", func() { wakes++ }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hint := func(order ...int) {
			for _, i := range order {
				nodes[i].store.Set("k", "token", time.Minute)
				_, _ = nodes[i].store.DeleteIf(t.Context(), "k", "token")
			}
		}
		hint(0, 1, 2) // 2 is an echo
		hint(2, 0)    // the next release, at once
		if wakes != 2 {
			t.Errorf("woken %d times for two releases", wakes)
		}
	})
}

func TestWhatTheQuorumErrorSays(t *testing.T) {
	held := func(left time.Duration, foreign bool) redlock.Vote {
		return redlock.Vote{Outcome: redlock.Held, Err: &locker.HeldError{Left: left, Foreign: foreign}}
	}
	no := redlock.Vote{Outcome: redlock.Failed, Err: refusal{}}
	granted := redlock.Vote{Outcome: redlock.Granted}
	for spare, votes := range map[int][]redlock.Vote{0: {no, no, granted, granted, granted}, 1: {no, no, no, granted, granted}} {
		if e := (&redlock.QuorumError{Needed: 3, Votes: votes}); e.Refused() != (spare == 1) {
			t.Errorf("%v: refused is %v", e, e.Refused())
		}
	}
	two := &redlock.QuorumError{Needed: 3, Votes: []redlock.Vote{held(0, true), held(0, true), granted, granted, granted}}
	if errors.Is(two, locker.ErrForeignKey) {
		t.Error("two values without expiry keep nobody from a quorum")
	}
	for name, c := range map[string]struct {
		left []time.Duration // of nodes that are held, in the order of their answers; 0: without expiry
		want time.Duration
	}{
		"all three have to end":      {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute, time.Minute, time.Minute}, 4 * time.Minute},
		"one has to end":             {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute}, 2 * time.Minute},
		"two have to, or who knows":  {[]time.Duration{4 * time.Minute, 2 * time.Minute, 0, time.Minute}, 0},
		"two have to, the first two": {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute, time.Minute}, 3 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for i, left := range c.left {
				nodes[i].store.Set("k", "theirs", left)
				nodes[i].set("acquire", behaviour{hold: time.Duration(i+1) * time.Millisecond})
			}
			_, err := quorumOf(t, nodes).Acquire(t.Context(), request())
			var h *locker.HeldError
			if !errors.As(err, &h) || h.Left.Round(time.Second) != c.want {
				t.Errorf("%s: %v, %+v; want %v", name, err, h, c.want)
			}
			time.Sleep(time.Second)
		})
	}
}

type refusal struct{}

func (refusal) Error() string { return "refused" }
func (refusal) Refused() bool { return true }
