package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

func TestBadOptionsAreErrorsThatSayWhy(t *testing.T) {
	five := lockers(newNodes(5))
	store := memory.New()
	for _, c := range []struct {
		nodes []locker.Locker
		opts  []redlock.Option
		says  string
	}{
		{nil, nil, "no nodes: pass one Locker or store for each server"},
		{five, []redlock.Option{redlock.WithQuorum(2)}, "quorum 2 of 5 nodes is not within 3 and 5 (see redlock.WithQuorum)"},
		{five, []redlock.Option{redlock.WithQuorum(6)}, "quorum 6 of 5 nodes is not within 3 and 5 (see redlock.WithQuorum)"},
		{five[:4], []redlock.Option{redlock.WithQuorum(2)}, "quorum 2 of 4 nodes is not within 3 and 4 (see redlock.WithQuorum)"},
		{five, []redlock.Option{redlock.WithDrift(0.001)}, "drift 0.001 is not within 0.01 and 1 (see redlock.WithDrift)"},
		{five, []redlock.Option{redlock.WithDrift(1)}, "drift 1 is not within 0.01 and 1 (see redlock.WithDrift)"},
		{five, []redlock.Option{redlock.WithNodeLimit(0)}, "node limit 0s is under the minimum of 1ms (see redlock.WithNodeLimit)"},
		{five, []redlock.Option{redlock.WithQuorum(4), nil}, "option 2 is nil"},
		{[]locker.Locker{five[0], nil}, nil, "node 2 is nil"},
		{[]locker.Locker{five[0], five[1], five[0]}, nil, "nodes 1 and 3 are the same, and would count twice: use a server for each"},
	} {
		_, err := redlock.New(c.nodes, c.opts...)
		permanent, ok := err.(interface {
			Permanent() bool
			ErrorType() string
		})
		if !ok || err.Error() != "lockstep: redlock: "+c.says || !permanent.Permanent() || permanent.ErrorType() != "invalid" {
			t.Errorf("New = %v; want %s", err, c.says)
		}
	}
	for _, stores := range [][]backends.FencedStore{nil, {nil}, {store, store}} {
		if _, err := redlock.NewFenced(stores); err == nil {
			t.Errorf("NewFenced(%v) = nil", stores)
		}
	}
	if _, err := redlock.NewFenced([]backends.FencedStore{store}, nil); err == nil {
		t.Error("NewFenced with a nil Option = nil")
	}
	for n := 1; n <= 7; n++ {
		for w := n/2 + 1; w <= n; w++ {
			if _, err := redlock.New(lockers(newNodes(n)), redlock.WithQuorum(w)); err != nil {
				t.Errorf("%d of %d: %v", w, n, err)
			}
		}
	}
}

func TestALeaseThatIsNotValidIsNotSentToTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, nameless := quorumOf(t, nodes), contract.Lease{Key: "k"}
		_, extend := l.Extend(t.Context(), nameless, ttl)
		for call, err := range map[string]error{
			"extend": extend, "release": l.Release(t.Context(), nameless), "watch": l.Watch(t.Context(), "", "", func() {}),
		} {
			synctest.Wait()
			var votes *redlock.QuorumError
			if err == nil || errors.As(err, &votes) || nodes[0].count(call)+nodes[1].count(call)+nodes[2].count(call) != 0 {
				t.Errorf("%s = %v; calls of the nodes: %d, %d and %d", call, err, nodes[0].count(call), nodes[1].count(call), nodes[2].count(call))
			}
		}
	})
}
