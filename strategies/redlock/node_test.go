package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var errDown = errors.New("down")

// node is a Locker in memory whose behaviour a test sets. It records its calls.
type node struct {
	locker.Locker
	store *memory.Store

	mu    sync.Mutex
	asked []string // the calls, in order, when they began
	will  map[string]behaviour
}

// behaviour is what happens to a call: it waits, then goes on or fails.
type behaviour struct {
	after time.Duration // before the call is executed; ignores ctx
	hold  time.Duration // before the call is answered; ignores ctx
	err   error         // the call fails with it instead
	lost  error         // the call is executed, and fails with it all the same
}

func newNode() *node {
	s := memory.New(memory.WithMaxTTL(beneath.MaxTTL))
	return &node{Locker: single.New(s), store: s, will: map[string]behaviour{}}
}

func newNodes(n int) []*node {
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = newNode()
	}
	return nodes
}

func lockers(nodes []*node) []locker.Locker {
	all := make([]locker.Locker, len(nodes))
	for i, n := range nodes {
		all[i] = n
	}
	return all
}

func quorumOf(t *testing.T, nodes []*node, opts ...redlock.Option) locker.Locker {
	t.Helper()
	l, err := redlock.New(lockers(nodes), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (n *node) set(call string, b behaviour) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.will[call] = b
}

// heal makes all nodes answer, so that no cleanup outlives the test.
func heal(nodes []*node) {
	for _, n := range nodes {
		for _, call := range []string{"acquire", "transfer", "extend", "release"} {
			n.set(call, behaviour{})
		}
	}
}

func (n *node) count(call string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.asked {
		if c == call {
			times++
		}
	}
	return times
}

func (n *node) meet(call string, do func() error) error {
	n.mu.Lock()
	n.asked = append(n.asked, call)
	b := n.will[call]
	n.mu.Unlock()
	time.Sleep(b.after)
	err := b.err
	if err == nil {
		err = do()
	}
	time.Sleep(b.hold)
	if b.lost != nil {
		return b.lost
	}
	return err
}

func (n *node) Acquire(ctx context.Context, req contract.Request) (lease contract.Lease, err error) {
	err = n.meet("acquire", func() (err error) {
		lease, err = n.Locker.Acquire(context.WithoutCancel(ctx), req)
		return err
	})
	return lease, err
}

func (n *node) Transfer(ctx context.Context, from string, req contract.Request) (lease contract.Lease, err error) {
	err = n.meet("transfer", func() (err error) {
		lease, err = n.Locker.Transfer(context.WithoutCancel(ctx), from, req)
		return err
	})
	return lease, err
}

func (n *node) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (extended contract.Lease, err error) {
	err = n.meet("extend", func() (err error) {
		extended, err = n.Locker.Extend(context.WithoutCancel(ctx), lease, ttl)
		return err
	})
	return extended, err
}

func (n *node) Release(ctx context.Context, lease contract.Lease) error {
	return n.meet("release", func() error { return n.Locker.Release(context.WithoutCancel(ctx), lease) })
}

func (n *node) Watch(ctx context.Context, key, waiter string, wake func()) error {
	return n.meet("watch", func() error { return n.Locker.Watch(ctx, key, waiter, wake) })
}

// holder returns the token under key "k", or "".
func (n *node) holder() string {
	value, _, _ := n.store.Get("k")
	return value
}

func holding(nodes []*node, token string) (count int) {
	synctest.Wait()
	for _, n := range nodes {
		if n.holder() == token {
			count++
		}
	}
	return count
}

const ttl = 10 * time.Second

func request() contract.Request {
	return contract.Request{Key: "k", Token: contract.NewToken(), TTL: ttl}
}

func mustAcquire(t *testing.T, l locker.Locker, req contract.Request) contract.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// took checks how long do lasts, in fake time.
func took(t *testing.T, want time.Duration, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if got := time.Since(began); got != want {
		t.Errorf("it took %v; want %v", got, want)
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
