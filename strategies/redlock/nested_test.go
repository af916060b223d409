package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// asNode notes which calls say that they come from a quorum.
type asNode struct {
	locker.Locker
	mu   sync.Mutex
	says map[string]bool
}

func (n *asNode) note(ctx context.Context, call string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ends := ctx.Deadline(); !ends {
		call += " without a limit"
	}
	n.says[call] = calls.IsNode(ctx)
}

func (n *asNode) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	n.note(ctx, "acquire")
	return n.Locker.Acquire(ctx, req)
}

func (n *asNode) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	n.note(ctx, "extend")
	return n.Locker.Extend(ctx, lease, ttl)
}

func (n *asNode) Release(ctx context.Context, lease contract.Lease) error {
	n.note(ctx, "release")
	return n.Locker.Release(ctx, lease)
}

func TestNodesAreToldThatAQuorumAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &asNode{Locker: newNode(), says: map[string]bool{}}
		l, err := redlock.New([]locker.Locker{n, newNode(), newNode()})
		if err != nil {
			t.Fatal(err)
		}
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		if lease, err = l.Extend(t.Context(), lease, ttl); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(n.says) != 3 || !n.says["acquire"] || !n.says["release"] || n.says["extend"] {
			t.Errorf("%v; want acquire and release", n.says)
		}
	})
}

// A quorum that is a node of another one leaves the cleanup to it.
func TestAQuorumInsideAnotherOneLeavesTheCleanupToIt(t *testing.T) {
	for name, c := range map[string]struct {
		after    time.Duration // node 3 answers the attempt, and the outcome is unknown
		release  bool          // of the quorum above
		releases int           // on node 3
	}{
		"an attempt that failed":                  {},
		"one that is released":                    {release: true, releases: 4}, // three confirm the first
		"one that is released, and answered late": {after: 300 * time.Millisecond, release: true, releases: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				l, req := quorumOf(t, nodes), request()
				for _, n := range nodes[:2] {
					mustAcquire(t, n, request())
				}
				nodes[2].set("acquire", behaviour{after: c.after, err: errDown})
				if _, err := l.Acquire(calls.ForNode(t.Context()), req); !errors.Is(err, locker.ErrHeld) {
					t.Fatalf("Acquire = %v", err)
				}
				if c.release {
					lease := contract.Lease{Key: req.Key, Token: req.Token, Expires: time.Now().Add(req.TTL)}
					if err := l.Release(calls.ForNode(t.Context()), lease); !errors.Is(err, locker.ErrLost) {
						t.Errorf("Release = %v", err)
					}
				}
				time.Sleep(time.Minute)
				if n := nodes[2].count("release"); n != c.releases {
					t.Errorf("node 3 was released %d times; want %d", n, c.releases)
				}
				if n := nodes[0].count("extend"); n != 0 {
					t.Error("it looks for the cause of a loss, which its caller judges")
				}
				for i, server := range redlock.Servers(l) {
					if server.Slots != 0 {
						t.Errorf("node %d: %+v", i+1, server)
					}
				}
			})
		})
	}
}
