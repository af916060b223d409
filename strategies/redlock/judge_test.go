package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// far is a store with a delay of 20 ms.
type far struct{ backends.Store }

func (f far) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	select {
	case <-time.After(20 * time.Millisecond):
		return f.Store.SetNX(ctx, key, value, ttl)
	case <-ctx.Done():
		return backends.Result{}, ctx.Err()
	}
}

// An attempt with a TTL shorter than a round trip fails by itself. That shows nothing about the
// nodes.
func TestAnAttemptWithAShortTTLDoesNotMakeNodesCountAsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []locker.Locker
		for range 3 {
			nodes = append(nodes, single.New(far{newShaky()}))
		}
		l, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		if lease, err := l.Acquire(t.Context(), contract.Request{Key: "short", Token: contract.NewToken(), TTL: 15 * time.Millisecond}); err == nil {
			t.Fatalf("granted %v", lease)
		}
		synctest.Wait()
		var wg sync.WaitGroup
		var failed atomic.Int32
		for i := range 16 {
			wg.Go(func() {
				if _, err := l.Acquire(t.Context(), contract.Request{Key: fmt.Sprint(i), Token: contract.NewToken(), TTL: ttl}); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d of 16 other attempts failed", n)
		}
		time.Sleep(time.Minute)
	})
}

// hanging answers Acquire long after it was executed.
type hanging struct{ locker.Locker }

func (h hanging) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	_, _ = h.Locker.Acquire(ctx, req)
	time.Sleep(20 * time.Second)
	return contract.Lease{}, errDown
}

// A node that does not count for an extension has still answered it.
func TestANodeThatDoesNotCountForAnExtensionIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := redlock.New([]locker.Locker{single.New(newShaky()), single.New(newShaky()), hanging{single.New(newShaky())}})
		if err != nil {
			t.Fatal(err)
		}
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		if _, err := l.Extend(t.Context(), lease, ttl); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, s := range redlock.Servers(l) {
			if s.Silent {
				t.Errorf("node %d counts as silent", i+1)
			}
		}
		time.Sleep(time.Minute)
	})
}

// A quorum that is a node leaves the tokens on its own nodes to the quorum above it, also when it
// finds the lock held.
func TestAQuorumOfQuorumsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, inner := shakyQuorum(t, 3)
		l, err := redlock.New([]locker.Locker{inner})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stores[:2] { // another holder has the key on two nodes
			if _, err := s.Store.SetNX(t.Context(), "k", "other", 2*ttl); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Acquire(t.Context(), request()); !errors.Is(err, locker.ErrHeld) {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		if r, err := stores[2].Store.SetNX(t.Context(), "k", "probe", time.Second); err != nil || !r.OK {
			t.Errorf("node 3 still has the token: %+v, %v", r, err)
		}
		time.Sleep(time.Minute)
	})
}
