package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAcquireReturnsAsSoonAsTheQuorumIsReachedOrImpossible(t *testing.T) {
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
				var lease contract.Lease
				var err error
				granted := c.n-c.held-c.down-c.slow >= c.w
				outage, limit := c.down > c.n-c.w, time.Duration(0)
				if !granted && !outage && c.down > 0 && c.down+c.slow > c.n-c.w { // the slow nodes decide whether it is one
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
					t.Error("a node still has the token")
				}
				heal(nodes)
				time.Sleep(2 * time.Hour) // late grants are released when they arrive
				if holding(nodes, req.Token) != 0 {
					t.Error("a late grant was not released")
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
			lease := contract.Lease{Key: req.Key, Token: req.Token}
			var err error
			took(t, min(want, ttl), func() { _, err = l.Acquire(t.Context(), req) })
			wantQuorum(t, err, "2 of 5 nodes granted, 3 needed: node 1: no answer within "+min(want, ttl).String())
			if errors.Is(err, locker.ErrHeld) {
				t.Error("the error of an outage matches ErrHeld")
			}
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d of the nodes that answer are still locked", n)
			}
			took(t, min(want, ttl), func() { _, err = l.Extend(t.Context(), lease, ttl) })
			if errors.Is(err, locker.ErrLost) {
				t.Errorf("Extend = %v", err)
			}
			took(t, want, func() { err = l.Release(t.Context(), lease) })
			if errors.Is(err, locker.ErrLost) || err == nil {
				t.Errorf("Release = %v", err)
			}
			heal(nodes)
			time.Sleep(3 * time.Hour)
		})
	}
}

func TestTheLimitIsNeverLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes[:2] {
			n.set("release", behaviour{after: time.Minute})
		}
		for _, n := range nodes[1:] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond}) // so that the first node has granted before
		}
		l, req := quorumOf(t, nodes), request()
		req.TTL = contract.MinTTL
		took(t, time.Millisecond+contract.MinTTL, func() { _, _ = l.Acquire(t.Context(), req) })
		heal(nodes)
		time.Sleep(2 * time.Minute)
	})
}

func TestAFailedAttemptIsReleasedWhereItWasGrantedBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[:3] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond}) // so that the other nodes have granted before
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
			t.Errorf("%d nodes still have the token", n)
		}
		time.Sleep(time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have the token at the end", n)
		}
	})
}

// slowTimer is a ctx whose deadline is over but whose timer has not fired, as on a busy machine.
type slowTimer struct {
	context.Context
	end time.Time
}

func (c slowTimer) Deadline() (time.Time, bool) { return c.end, true }

func TestACtxWhoseTimeIsOverHasEndedAlsoIfItsTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		lease, err := l.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			for _, op := range []string{"acquire", "extend", "release"} {
				n.set(op, behaviour{after: time.Second})
			}
		}
		for op, call := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := l.Acquire(ctx, request()); return err },
			"extend": func(ctx context.Context) error {
				_, err := l.Extend(ctx, lease, lease.Expires.Sub(lease.Granted))
				return err
			},
			"release": func(ctx context.Context) error { return l.Release(ctx, lease) },
		} {
			err := call(slowTimer{t.Context(), time.Now().Add(100 * time.Millisecond)})
			if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*redlock.QuorumError)) {
				t.Errorf("%s = %v", op, err)
			}
		}
		time.Sleep(time.Minute)
	})
}

func TestAQuorumThatIsReachedAfterTheEndOfTheLeaseIsAnError(t *testing.T) {
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
			t.Error("a node still has the token")
		}
	})
}

func TestTheLeaseCountsFromBeforeTheFirstRequestAndAllowsForDrift(t *testing.T) {
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

func TestGrantsOfNewHaveNoNumberAlthoughTheNodesNumberTheirs(t *testing.T) {
	nodes := []locker.Locker{fenced.New(memory.New()), fenced.New(memory.New()), fenced.New(memory.New())}
	l, err := redlock.New(nodes)
	if err != nil {
		t.Fatal(err)
	}
	if lease := mustAcquire(t, l, request()); lease.Fence != 0 {
		t.Errorf("Fence = %d", lease.Fence)
	}
}

// Positions with single nodes would keep every waiter from a quorum. See Watch, which names no
// waiter either.
func TestNoAttemptTakesAPositionInTheQueueOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]locker.Locker, 3)
		for i := range nodes {
			nodes[i] = placeless{single.New(memory.New()), t}
		}
		l, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		req := request()
		req.Waiter = "me"
		mustAcquire(t, l, req)
	})
}

type placeless struct {
	locker.Locker
	t *testing.T
}

func (p placeless) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if req.Waiter != "" {
		p.t.Errorf("a node got the waiter %q", req.Waiter)
	}
	return p.Locker.Acquire(ctx, req)
}

func TestALeaseAndAnErrorCountTheNodesThatGranted(t *testing.T) {
	for down := range 4 {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			for _, n := range nodes[:down] {
				n.set("acquire", behaviour{err: errDown})
			}
			lease, err := quorumOf(t, nodes).Acquire(t.Context(), request())
			if down <= 2 {
				if err != nil || lease.Quorum != (contract.Quorum{Granted: 3, Size: 5}) { // decided at the third
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
