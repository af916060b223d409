package redlock_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestTheErrorHasTheVoteOfEachNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		nodes[0].store.Set("k", "theirs", time.Minute)
		nodes[1].store.Set("k", "theirs", 2*time.Minute)
		nodes[2].set("acquire", behaviour{hold: 7 * time.Millisecond, err: errDown})
		nodes[3].set("acquire", behaviour{after: time.Hour})
		_, err := quorumOf(t, nodes).Acquire(t.Context(), request())
		q := wantQuorum(t, err, `lockstep: acquire "k": held by someone else: 1 of 5 nodes granted, 3 needed: `+
			`node 1: held for 1m0s more; node 2: held for 2m0s more; node 3: down; node 4: not waited for`)
		want := []redlock.Outcome{redlock.Held, redlock.Held, redlock.Failed, redlock.Pending, redlock.Granted}
		for i, v := range q.Votes {
			if v.Outcome != want[i] || (v.Err == nil) != (want[i] == redlock.Granted || want[i] == redlock.Pending) {
				t.Errorf("vote %d: %+v; want %s", i, v, want[i])
			}
		}
		if q.Votes[2].Latency != 7*time.Millisecond || q.Needed != 3 {
			t.Errorf("%+v", q)
		}
		var held *locker.HeldError
		if !errors.Is(err, locker.ErrHeld) || errors.Is(err, errDown) || !errors.As(err, &held) || held.Left != 2*time.Minute {
			t.Errorf("%v, %+v: want ErrHeld, free when one of the two leases ends, not in %v", err, held, held.Left)
		}
		heal(nodes)
		time.Sleep(2 * time.Hour)
	})
}

func TestTheTextAndTheMatchesOfAQuorumError(t *testing.T) {
	held := func(left time.Duration, foreign bool) redlock.Vote {
		return redlock.Vote{Outcome: redlock.Held, Err: &locker.HeldError{Left: left, Foreign: foreign}}
	}
	no := redlock.Vote{Outcome: redlock.Failed, Err: denied{}}
	granted := redlock.Vote{Outcome: redlock.Granted}
	for spare, votes := range map[int][]redlock.Vote{0: {no, no, granted, granted, granted}, 1: {no, no, no, granted, granted}} {
		if e := (&redlock.QuorumError{Needed: 3, Votes: votes}); e.Permanent() != (spare == 1) {
			t.Errorf("%v: permanent is %v", e, e.Permanent())
		}
	}
	two := &redlock.QuorumError{Needed: 3, Votes: []redlock.Vote{held(0, true), held(0, true), granted, granted, granted}}
	if errors.Is(two, locker.ErrForeignKey) {
		t.Error("the error matches ErrForeignKey, but three nodes without such a value make a quorum")
	}
	mixed := &redlock.QuorumError{Needed: 3, Votes: []redlock.Vote{held(0, true), held(0, false), held(time.Second, false), granted, granted}}
	if got, want := mixed.Error(), "held by someone else: 2 of 5 nodes granted, 3 needed: "+
		"node 1: held by a value without expiry; node 2: held; node 3: held for 1s more"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	for name, c := range map[string]struct {
		left []time.Duration // of nodes that are held, in the order of their answers; 0: without expiry
		want time.Duration
	}{
		"all three have to end":         {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute, time.Minute, time.Minute}, 4 * time.Minute},
		"one has to end":                {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute}, 2 * time.Minute},
		"two have to, or it is unknown": {[]time.Duration{4 * time.Minute, 2 * time.Minute, 0, time.Minute}, 0},
		"two have to, the first two":    {[]time.Duration{4 * time.Minute, 2 * time.Minute, 3 * time.Minute, time.Minute}, 3 * time.Minute},
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

func TestTheHolderOfAQuorumIsTheOneThatMostNodesName(t *testing.T) {
	for _, labels := range [][]string{{"bob", "ann", "ann"}, {"ann", "ann", "bob"}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for i, label := range labels {
				nodes[i].store.Set("k", label+" "+rand.Text(), time.Minute)
			}
			_, err := quorumOf(t, nodes).Acquire(t.Context(), request())
			var held *locker.HeldError
			if !errors.As(err, &held) || held.Holder != "ann" {
				t.Errorf("Acquire where %q hold the nodes = %v, %+v", labels, err, held)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestOnlyMoreFailuresThanTheQuorumCanDoWithoutAreAnOutage(t *testing.T) {
	for down := range 6 {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for i, n := range nodes {
				if n.store.Set("k", "theirs", time.Minute); i < down {
					n.set("acquire", behaviour{err: errDown})
				}
			}
			_, err := quorumOf(t, nodes).Acquire(t.Context(), request())
			if outage := down > 2; outage == errors.Is(err, locker.ErrHeld) || outage != errors.Is(err, errDown) {
				t.Errorf("%d down: %v", down, err)
			}
		})
	}
}

func TestPermanentErrorsAndForeignKeysOfNodesAreThoseOfTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		for i, n := range nodes {
			n.store.Set("k", "forever", 0)
			lease, err := l.Acquire(t.Context(), request())
			_ = l.Release(t.Context(), lease)
			if foreign := i >= 1; foreign != errors.Is(err, locker.ErrForeignKey) || i > 1 && !errors.Is(err, locker.ErrHeld) {
				t.Errorf("%d values without expiry: %v", i+1, err)
			}
		}
		for i, n := range nodes {
			n.store.SetOther("k")
			_, err := l.Acquire(t.Context(), request())
			found := interface{ Permanent() bool }(nil)
			permanent := errors.As(err, &found) && found.Permanent()
			if i >= 1 && (!permanent || !errors.Is(err, locker.ErrForeignKey) || errors.Is(err, locker.ErrHeld)) {
				t.Errorf("%d values of another type: %v", i+1, err)
			}
		}
	})
}

type denied struct{}

func (denied) Error() string   { return "no permission" }
func (denied) Permanent() bool { return true }
