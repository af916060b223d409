package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestBadOptionsAreRefusedAndSaidWhy(t *testing.T) {
	five := lockers(newNodes(5))
	store := memory.New()
	for _, c := range []struct {
		nodes []locker.Locker
		opts  []redlock.Option
		says  string
	}{
		{nil, nil, "no nodes"},
		{five, []redlock.Option{redlock.WithQuorum(2)}, "quorum 2 of 5 nodes is not within 3 and 5"},
		{five, []redlock.Option{redlock.WithQuorum(6)}, "quorum 6 of 5 nodes is not within 3 and 5"},
		{five[:4], []redlock.Option{redlock.WithQuorum(2)}, "quorum 2 of 4 nodes is not within 3 and 4"},
		{five, []redlock.Option{redlock.WithDrift(0.001)}, "drift 0.001 is not within 0.01 and 1"},
		{five, []redlock.Option{redlock.WithDrift(1)}, "drift 1 is not within 0.01 and 1"},
		{five, []redlock.Option{redlock.WithNodeLimit(0)}, "node limit 0s is under the limit of 1ms"},
		{[]locker.Locker{five[0], nil}, nil, "node 2 is nil"},
		{[]locker.Locker{five[0], five[1], five[0]}, nil, "nodes 1 and 3 are the same: it would be counted twice"},
	} {
		_, err := redlock.New(c.nodes, c.opts...)
		if refusal, ok := err.(interface{ Refused() bool }); err == nil || err.Error() != "lockstep: redlock: "+c.says || !ok || !refusal.Refused() {
			t.Errorf("New = %v; want %s", err, c.says)
		}
	}
	for _, stores := range [][]backends.FencedStore{nil, {nil}, {store, store}} {
		if _, err := redlock.NewFenced(stores); err == nil {
			t.Errorf("NewFenced(%v) = nil", stores)
		}
	}
	for n := 1; n <= 7; n++ {
		for w := n/2 + 1; w <= n; w++ {
			if _, err := redlock.New(lockers(newNodes(n)), redlock.WithQuorum(w)); err != nil {
				t.Errorf("%d of %d: %v", w, n, err)
			}
		}
	}
}

func TestItIsDecidedAsSoonAsTheQuorumIsReachedOrImpossible(t *testing.T) {
	for _, c := range []struct{ n, w, held, down, slow int }{
		{3, 2, 0, 0, 1}, {3, 2, 0, 1, 0}, {3, 2, 2, 0, 1}, {3, 2, 0, 2, 1}, {3, 3, 1, 0, 2}, {4, 3, 2, 0, 2}, {4, 3, 0, 0, 1},
		{5, 3, 0, 0, 2}, {5, 3, 1, 1, 0}, {5, 3, 3, 0, 2}, {5, 3, 1, 2, 2}, {5, 4, 0, 0, 1}, {5, 4, 2, 0, 3}, {5, 4, 0, 2, 3}, {5, 5, 0, 1, 4},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(c.n)
				for i, n := range nodes {
					switch {
					case i < c.held:
						n.store.Set("k", "theirs", time.Minute)
					case i < c.held+c.down:
						n.set("acquire", behaviour{err: errDown})
					case i < c.held+c.down+c.slow:
						n.set("acquire", behaviour{after: time.Hour})
					}
				}
				l, req := quorumOf(t, nodes, redlock.WithQuorum(c.w)), request()
				var lease locker.Lease
				var err error
				granted := c.n-c.held-c.down-c.slow >= c.w
				outage, limit := c.down > c.n-c.w, time.Duration(0)
				if !granted && !outage && c.down > 0 && c.down+c.slow > c.n-c.w { // is it one?
					outage, limit = true, redlock.DefaultNodeLimit
				}
				took(t, limit, func() { lease, err = l.Acquire(t.Context(), req) })
				switch {
				case granted != (err == nil):
					t.Fatalf("Acquire = %v", err)
				case granted:
					if err := l.Release(t.Context(), lease); err != nil {
						t.Error(err)
					}
				case outage == errors.Is(err, locker.ErrHeld):
					t.Errorf("Acquire = %v, ErrHeld is %v", err, !outage)
				}
				if holding(nodes, req.Token) != 0 {
					t.Error("the token is still somewhere")
				}
				time.Sleep(2 * time.Hour) // late grants are released by who receives them
				if holding(nodes, req.Token) != 0 {
					t.Error("a late grant was kept")
				}
			})
		})
	}
}

func TestANodeIsNotWaitedForBeyondTheLimit(t *testing.T) {
	for _, limit := range []time.Duration{0, 50 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for _, n := range nodes[:3] {
				for _, call := range []string{"acquire", "extend", "release"} {
					n.set(call, behaviour{after: time.Hour})
				}
			}
			var opts []redlock.Option
			want := redlock.DefaultNodeLimit
			if limit != 0 {
				opts, want = append(opts, redlock.WithNodeLimit(limit)), limit
			}
			l, req := quorumOf(t, nodes, opts...), request()
			lease := locker.Lease{Key: req.Key, Token: req.Token}
			var err error
			took(t, min(want, ttl), func() { _, err = l.Acquire(t.Context(), req) })
			wantQuorum(t, err, "2 of 5 nodes granted, 3 needed: node 1: no answer within "+min(want, ttl).String())
			if errors.Is(err, locker.ErrHeld) {
				t.Error("an outage is not contention")
			}
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d of the living nodes are still locked", n)
			}
			took(t, min(want, ttl), func() { _, err = l.Extend(t.Context(), lease, ttl) })
			if errors.Is(err, locker.ErrLost) {
				t.Errorf("Extend = %v", err)
			}
			took(t, want, func() { err = l.Release(t.Context(), lease) })
			if errors.Is(err, locker.ErrLost) || err == nil {
				t.Errorf("Release = %v", err)
			}
			time.Sleep(3 * time.Hour)
		})
	}
}

func wantQuorum(t *testing.T, err error, says string) *redlock.QuorumError {
	t.Helper()
	var q *redlock.QuorumError
	if !errors.As(err, &q) || !strings.Contains(err.Error(), says) {
		t.Fatalf("error %v; want a QuorumError that says %s", err, says)
	}
	return q
}

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
			t.Errorf("%v, %+v: it is held, and one of the two has to end: %v", err, held, held.Left)
		}
		time.Sleep(2 * time.Hour)
	})
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

func TestRefusalsAndForeignKeysOfNodesAreThoseOfTheQuorum(t *testing.T) {
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
			refusal := interface{ Refused() bool }(nil)
			refused := errors.As(err, &refusal) && refusal.Refused()
			if i >= 1 && (!refused || !errors.Is(err, locker.ErrForeignKey) || errors.Is(err, locker.ErrHeld)) {
				t.Errorf("%d values of another type: %v", i+1, err)
			}
		}
	})
}

func TestARefusedAttemptIsReleasedWhereItWasGrantedBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[:3] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond}) // so that it is decided after the others have granted
		}
		for _, n := range nodes[3:] {
			n.set("release", behaviour{hold: 20 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		took(t, 21*time.Millisecond, func() { _, _ = l.Acquire(t.Context(), req) })
		for i, n := range nodes {
			if got := n.count("release"); (i > 2) != (got == 1) || i < 3 && got != 0 {
				t.Errorf("node %d got %d releases", i+1, got)
			}
		}
	})
}

func TestAnAttemptWhoseCtxEndsReturnsAtOnceAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[2:] {
			n.set("acquire", behaviour{after: 300 * time.Millisecond})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		l, req := quorumOf(t, nodes), request()
		var err error
		took(t, 100*time.Millisecond, func() { _, err = l.Acquire(ctx, req) })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have it still", n)
		}
		time.Sleep(time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have it in the end", n)
		}
	})
}

func TestAQuorumThatComesTogetherTooLateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.set("acquire", behaviour{hold: 99 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		req.TTL = 100 * time.Millisecond
		if _, err := l.Acquire(t.Context(), req); err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
		if holding(nodes, req.Token) != 0 {
			t.Error("the token is still somewhere")
		}
	})
}

func TestTheLeaseCountsFromBeforeTheFirstQuestionAndAllowsForDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for drift, margin := range map[float64]time.Duration{0.01: 102 * time.Millisecond, 0.05: 502 * time.Millisecond} {
			nodes := newNodes(3)
			for _, n := range nodes {
				n.set("acquire", behaviour{hold: 30 * time.Millisecond})
				n.set("extend", behaviour{hold: 30 * time.Millisecond})
			}
			l := quorumOf(t, nodes, redlock.WithDrift(drift))
			began := time.Now()
			lease := mustAcquire(t, l, request())
			if want := began.Add(ttl - margin); !lease.Expires.Equal(want) || !lease.Granted.Equal(began) {
				t.Errorf("Expires %v, Granted %v; want %v, %v", lease.Expires, lease.Granted, want, began)
			}
			began = time.Now()
			lease, err := l.Extend(t.Context(), lease, ttl)
			if want := began.Add(ttl - margin); err != nil || !lease.Expires.Equal(want) {
				t.Errorf("Extend = %v, %v; want until %v", lease, err, want)
			}
		}
	})
}

func TestGrantsHaveNoNumberWhateverTheNodesSay(t *testing.T) {
	nodes := []locker.Locker{fenced.New(memory.New()), fenced.New(memory.New()), fenced.New(memory.New())}
	l, err := redlock.New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	if lease := mustAcquire(t, l, request()); lease.Fence != 0 {
		t.Errorf("Fence = %d", lease.Fence)
	}
}

func TestInTurnAllNodesAreAskedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes {
			n.set("acquire", behaviour{hold: 10 * time.Millisecond})
		}
		nodes[1].set("acquire", behaviour{after: time.Hour})
		l := quorumOf(t, nodes, redlock.WithSequential())
		var lease locker.Lease
		took(t, 4*10*time.Millisecond+redlock.DefaultNodeLimit, func() { lease = mustAcquire(t, l, request()) })
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		if holding(nodes, "") != 5 {
			t.Error("a late grant was kept")
		}
	})
}
