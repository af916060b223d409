package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// shaky is a store whose behaviour a test sets. Package single makes it a node that leaves its
// cleanup to the quorum.
type shaky struct {
	backends.Store
	memory *memory.Store

	mu                  sync.Mutex
	set, expire, remove error // errors of the next calls
	lands               bool  // a SetNX that fails is executed all the same
	sets, removals      int
}

func newShaky() *shaky {
	m := memory.New()
	return &shaky{Store: m, memory: m}
}

func (s *shaky) is(change func(*shaky)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *shaky) counts() (sets, removals int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets, s.removals
}

func (s *shaky) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	s.mu.Lock()
	s.sets++
	err, lands := s.set, s.lands
	s.mu.Unlock()
	if err != nil && !lands {
		return backends.Result{}, err
	}
	r, failed := s.Store.SetNX(ctx, key, value, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	return r, failed
}

func (s *shaky) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	s.mu.Lock()
	err := s.expire
	s.mu.Unlock()
	if err != nil {
		time.Sleep(time.Millisecond) // the nodes that answer are counted first
		return false, err
	}
	return s.Store.ExpireIf(ctx, key, value, ttl)
}

func (s *shaky) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	s.mu.Lock()
	s.removals++
	err := s.remove
	s.mu.Unlock()
	if err != nil {
		return false, err
	}
	return s.Store.DeleteIf(ctx, key, value)
}

func shakyQuorum(t *testing.T, n int, opts ...redlock.Option) ([]*shaky, locker.Locker) {
	t.Helper()
	stores, nodes := make([]*shaky, n), make([]locker.Locker, n)
	for i := range stores {
		stores[i] = newShaky()
		nodes[i] = single.New(stores[i])
	}
	l, err := redlock.New(nodes, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return stores, l
}

var errRefused = &net.OpError{Op: "dial", Err: errDown}

// Node 3 has the token but its answer was lost. If it cleaned up by itself, it could do so after an
// extension that counted it. Node 1 was down for the extension, so its old lease ends. Then there
// are two holders.
func TestANodeThatAnExtensionCountsIsNotCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set, s.lands, s.remove = errDown, true, errDown })
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		time.Sleep(ttl / 2)
		stores[0].is(func(s *shaky) { s.expire = errDown })
		lease, err := l.Extend(t.Context(), lease, ttl)
		if err != nil {
			t.Fatalf("Extend on two of three that have the token = %v", err)
		}
		stores[2].is(func(s *shaky) { s.set, s.lands, s.remove = nil, false, nil })
		time.Sleep(ttl*3/4 - 100*time.Millisecond) // the lease on node 1 is over
		if _, err := l.Acquire(t.Context(), request()); !errors.Is(err, locker.ErrHeld) || lease.Ended() {
			t.Errorf("a second Acquire during the lease = %v", err)
		}
		stores[0].is(func(s *shaky) { s.expire = nil })
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if _, removals := stores[2].counts(); removals < 2 {
			t.Errorf("node 3 was released %d times; want more than one, since the grant may come late", removals)
		}
	})
}

// wrapped is a node inside middleware, so it cleans up by itself.
type wrapped struct{ locker.Locker }

// The same case with a node that cleans up by itself. The extension does not count it, since its
// cleanup may come later.
func TestANodeThatMayStillCleanUpByItselfDoesNotCountForAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, nodes := make([]*shaky, 3), make([]locker.Locker, 3)
		for i := range stores {
			stores[i] = newShaky()
			nodes[i] = wrapped{single.New(stores[i])}
		}
		l, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		stores[2].is(func(s *shaky) { s.set, s.lands, s.remove = errDown, true, errDown })
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		stores[0].is(func(s *shaky) { s.expire = errDown })
		_, err = l.Extend(t.Context(), lease, ttl)
		const want = "lockstep: extend \"k\": 1 of 3 nodes granted, 2 needed: node 1: down; " +
			"node 3: its attempt was never answered, and its own cleanup may still delete the key"
		if err == nil || err.Error() != want || errors.Is(err, locker.ErrLost) || backends.Unsent(err) || backends.Permanent(err) {
			t.Errorf("Extend = %v; want %s, unknown", err, want)
		}
		stores[0].is(func(s *shaky) { s.expire = nil })
		stores[2].is(func(s *shaky) { s.remove = nil })
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingIsReleasedWhereNothingWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set, s.remove = errRefused, errRefused })
		for range 100 {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if sets, removals := stores[2].counts(); sets > 10 || removals != 0 {
			t.Errorf("a node that refuses connections got %d sets and %d removals", sets, removals)
		}
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

func TestANodeThatDoesNotAnswerGetsOnlyProbes(t *testing.T) {
	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			stores, l := shakyQuorum(t, n)
			down := stores[n/2+1:]
			for _, s := range down {
				s.is(func(s *shaky) { s.set, s.remove = errDown, errDown })
			}
			for i := range 1000 {
				req := request()
				req.Key = fmt.Sprint(i)
				if err := l.Release(t.Context(), mustAcquire(t, l, req)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			for i, s := range down {
				if sets, removals := s.counts(); sets > 20 || removals > 20 {
					t.Errorf("node %d of %d got %d sets and %d removals", n/2+2+i, n, sets, removals)
				}
				s.is(func(s *shaky) { s.set, s.remove = nil, nil })
			}
			time.Sleep(time.Minute)
			before, _ := down[0].counts()
			for range 10 {
				if err := l.Release(t.Context(), mustAcquire(t, l, request())); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if after, _ := down[0].counts(); after-before < 9 {
				t.Errorf("a node that answers again got %d of 10 sets; want 9 at least", after-before)
			}
			time.Sleep(time.Minute)
		})
	}
}

// A node may have many calls under way because many attempts are: that does not hold it back.
func TestASlowNodeIsAskedByAllOfManyAttemptsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes {
			n.set("acquire", behaviour{after: 10 * time.Millisecond})
		}
		nodes[4].set("acquire", behaviour{after: 5 * time.Second})
		l := quorumOf(t, nodes)
		const atOnce = 100
		for wave := range 2 { // in the second one, the slow node has not answered the first
			var all sync.WaitGroup
			for i := range atOnce {
				all.Go(func() {
					req := request()
					req.Key = fmt.Sprint(wave, "key", i)
					mustAcquire(t, l, req)
				})
			}
			all.Wait()
		}
		if n := nodes[4].count("acquire"); n != 2*atOnce {
			t.Errorf("%d of %d attempts have asked the slow node", n, 2*atOnce)
		}
		time.Sleep(time.Minute)
	})
}

func TestOneFailureDoesNotStopAttemptsOnAQuorumOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3, redlock.WithQuorum(3))
		stores[1].is(func(s *shaky) { s.set = errDown })
		if lease, err := l.Acquire(t.Context(), request()); err == nil {
			t.Fatalf("granted %v", lease)
		}
		synctest.Wait() // by now the grants of the other nodes are released
		stores[1].is(func(s *shaky) { s.set = nil })
		for range 10 {
			if err := l.Release(t.Context(), mustAcquire(t, l, request())); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
	})
}

func TestANodeThatGotNoCallIsCalledWhenAnotherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set, s.expire = errRefused, errRefused })
		mustAcquire(t, l, request())
		synctest.Wait()
		stores[2].is(func(s *shaky) { s.set, s.expire = nil, nil })
		stores[0].is(func(s *shaky) { s.set, s.expire = errRefused, errRefused })
		req := request()
		req.Key = "other"
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		stores[0].is(func(s *shaky) { s.set, s.expire = nil, nil })
		if _, err := l.Extend(t.Context(), lease, ttl); err != nil {
			t.Errorf("Extend = %v", err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Errorf("Release = %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestWhileTooFewNodesAnswerMostAttemptsFailUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes[1:] {
			n.set("acquire", behaviour{after: 400 * time.Millisecond, err: errDown})
			n.set("release", behaviour{err: errDown})
		}
		l := quorumOf(t, nodes)
		if lease, err := l.Acquire(t.Context(), request()); err == nil {
			t.Fatalf("granted %v", lease)
		}
		before := nodes[1].count("acquire")
		var mu sync.Mutex
		var all sync.WaitGroup
		unsent := 0
		for i := range 100 {
			all.Go(func() {
				req := request()
				req.Key = fmt.Sprint("key", i)
				_, err := l.Acquire(t.Context(), req)
				if err == nil || errors.Is(err, locker.ErrHeld) {
					t.Errorf("Acquire = %v", err)
				}
				if backends.Unsent(err) {
					mu.Lock()
					unsent++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if n := nodes[1].count("acquire") - before; n > 8 || unsent < 90 {
			t.Errorf("node 2 got %d attempts, want 8 at most; %d of 100 failed unsent, want 90 at least", n, unsent)
		}
		heal(nodes)
		time.Sleep(time.Minute)
	})
}

func TestASilentNodeIsCalledForAnExtensionThatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		stores[2].is(func(s *shaky) { s.set = errRefused })
		req := request()
		req.Key = "other"
		mustAcquire(t, l, req) // node 3 is silent from here on
		synctest.Wait()
		stores[2].is(func(s *shaky) { s.set = nil })
		stores[0].is(func(s *shaky) { s.expire = errRefused })
		if _, err := l.Extend(t.Context(), lease, ttl); err != nil {
			t.Errorf("Extend = %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestAnAttemptIsForgottenAfterItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set = errDown })
		mustAcquire(t, l, request())
		time.Sleep(2 * ttl)
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered after the lease", n)
		}
	})
}

func TestAnAttemptThatFailsIsForgottenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[1].is(func(s *shaky) { s.set = errDown })
		stores[2].is(func(s *shaky) { s.set = errDown })
		if _, err := l.Acquire(t.Context(), request()); err == nil {
			t.Fatal("granted by one node of three")
		}
		synctest.Wait()
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
		time.Sleep(time.Minute)
	})
}

// A lease that is never released must not be remembered for ever.
func TestAnAttemptIsForgottenWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set = errDown })
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		time.Sleep(ttl / 2)
		if _, err := l.Extend(t.Context(), lease, ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl * 3 / 4)
		if n := redlock.Flying(l); n != 1 {
			t.Errorf("%d attempts are remembered during the lease", n)
		}
		time.Sleep(ttl)
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered after it", n)
		}
	})
}

// An explicit Extend may ask for less than the lease has left.
func TestAnAttemptIsNotForgottenSoonerByAShortExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set = errDown })
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		if _, err := l.Extend(t.Context(), lease, ttl/10); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		if n := redlock.Flying(l); n != 1 {
			t.Errorf("%d attempts are remembered during the lease", n)
		}
		time.Sleep(ttl)
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered after it", n)
		}
	})
}

func TestAnAttemptDoesNotMeetTheGhostOfTheOneBefore(t *testing.T) {
	for name, of := range map[string]func(*testing.T) ([]*shaky, locker.Locker){
		"single":  func(*testing.T) ([]*shaky, locker.Locker) { s := newShaky(); return []*shaky{s}, single.New(s) },
		"redlock": func(t *testing.T) ([]*shaky, locker.Locker) { return shakyQuorum(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores, l := of(t)
				for _, s := range stores {
					s.is(func(s *shaky) { s.set, s.lands, s.remove = errDown, true, errDown })
				}
				if lease, err := l.Acquire(t.Context(), request()); err == nil {
					t.Fatalf("granted %v", lease)
				}
				synctest.Wait()
				for _, s := range stores {
					s.is(func(s *shaky) { s.set = nil })
				}
				if _, err := l.Acquire(t.Context(), request()); err == nil || errors.Is(err, locker.ErrHeld) {
					t.Errorf("while the cleanup fails: Acquire = %v", err)
				}
				for _, s := range stores {
					s.is(func(s *shaky) { s.remove = nil })
				}
				lease, err := l.Acquire(t.Context(), request())
				if err != nil {
					t.Errorf("Acquire = %v; want the ghost removed first", err)
				}
				_ = l.Release(t.Context(), lease)
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestALateGrantOfANodeThatGotNoReleaseIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		nodes[2].set("acquire", behaviour{err: errRefused})
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		nodes[2].set("acquire", behaviour{after: 300 * time.Millisecond}) // the probe
		if err := l.Release(t.Context(), mustAcquire(t, l, request())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if nodes[2].count("acquire") != 2 || nodes[2].holder() != "" {
			t.Errorf("node 3 got %d attempts, want 2; it is locked by %q", nodes[2].count("acquire"), nodes[2].holder())
		}
	})
}

// Node 3 may have an attempt that arrives late, and its last call failed. So the release leaves it out.
func TestANodeThatTheReleaseHasLeftOutIsCleanedUpUntilALateGrantIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shakyQuorum(t, 3)
		stores[2].is(func(s *shaky) { s.set, s.expire = errDown, errDown })
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		lease, err := l.Extend(t.Context(), lease, ttl)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // the answer of node 3
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if _, removals := stores[2].counts(); removals < 2 {
			t.Errorf("node 3 was released %d times; want more than one, since the grant may come late", removals)
		}
	})
}
