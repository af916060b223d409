package redlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestExtendDoesNotCountANodeThatIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]*memory.Store, 3)
		faults := make([]*backendtest.FaultStore, 3)
		nodes := make([]locker.Locker, 3)
		for i := range nodes {
			stores[i] = memory.New()
			faults[i] = backendtest.Faulty(stores[i])
			nodes[i] = single.New(faults[i])
		}
		mine, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		others := make([]locker.Locker, 3) // of another process
		for i := range others {
			others[i] = single.New(stores[i])
		}
		theirs, _ := redlock.New(others)

		// Node 3 stores the token, its answer is lost, and it can't be reached for the clean-up until the extension.
		faults[2].Once(backendtest.SetNX, func(ctx context.Context, call func(context.Context) error) error {
			_ = call(ctx)
			return errDown
		})
		faults[2].Set(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error { return errDown })
		lease := mustAcquire(t, mine, request())
		time.Sleep(ttl / 3)
		// Node 2 is cut off from us from now on; it forgets nothing.
		faults[1].Set(backendtest.All, func(context.Context, func(context.Context) error) error { return errDown })
		faults[2].Clear()
		extended, err := mine.Extend(t.Context(), lease, ttl)
		t.Logf("Extend = %v, %v", time.Until(extended.Expires), err)
		time.Sleep(time.Until(lease.Expires) + 200*time.Millisecond) // the lease on node 2 has ended
		other, err := theirs.Acquire(t.Context(), request())
		if err == nil && time.Now().Before(extended.Expires) {
			t.Errorf("two holders: ours believes for %v more, theirs for %v", time.Until(extended.Expires), time.Until(other.Expires))
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
			t.Error("node 2 is locked still, and with it the lock")
		}
		time.Sleep(time.Minute)
	})
}

func TestARaiseThatFailsCountsForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]backends.FencedStore, 5)
		mem := make([]*memory.Store, 5)
		faults := make([]*backendtest.FaultFencedStore, 5)
		for i := range stores {
			mem[i] = memory.New()
			faults[i] = backendtest.FaultyFenced(mem[i])
			stores[i] = faults[i]
		}
		// node 1 is ahead
		for range 3 {
			_, _ = mem[0].SetNXFenced(t.Context(), "k", "x", ttl, backends.Count)
			_, _ = mem[0].DeleteIf(t.Context(), "k", "x")
		}
		fail := func(context.Context, func(context.Context) error) error { return errDown }
		later := func(ctx context.Context, call func(context.Context) error) error {
			time.Sleep(time.Millisecond)
			return errDown
		}
		faults[1].Set(backendtest.RaiseFence, fail)
		faults[2].Set(backendtest.RaiseFence, fail)
		mem[3].Set("k", "theirs", time.Minute)
		faults[4].Set(backendtest.SetNXFenced, later) // down, and says so a little later
		l, err := redlock.NewFenced(stores)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(t.Context(), request())
		if errors.Is(err, locker.ErrHeld) {
			t.Errorf("three of five failed: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestInTurnNobodyIsAskedAfterTheAttemptIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		nodes[0].set("acquire", behaviour{after: time.Hour})
		l := quorumOf(t, nodes, redlock.WithSequential())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, request())
		synctest.Wait()
		time.Sleep(2 * time.Second)
		for i, n := range nodes[1:] {
			if n.count("acquire") != 0 {
				t.Errorf("node %d was asked after Acquire had returned %v", i+2, err)
			}
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestANodeThatEndsTheGoroutineIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		all := lockers(nodes)
		all[0] = goexits{nodes[0]}
		l, _ := redlock.New(all, redlock.WithQuorum(3))
		req := request()
		_, err := l.Acquire(t.Context(), req)
		time.Sleep(time.Second)
		if holding(nodes, req.Token) != 0 {
			t.Errorf("it is still locked after %v", err)
		}
	})
}

type goexits struct{ *node }

func (g goexits) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	_, _ = g.node.Acquire(ctx, req)
	runtime.Goexit()
	return locker.Lease{}, nil
}

func TestAHintDoesNotCountForALaterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l := quorumOf(t, nodes)
		var at []int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		free := 0
		if err := l.Watch(ctx, "k", func() { at = append(at, free) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// Somebody's attempt that got one node, long ago.
		nodes[0].store.Set("k", "token", time.Minute)
		_, _ = nodes[0].store.DeleteIf(t.Context(), "k", "token")
		time.Sleep(time.Minute)
		for range 5 {
			lease := mustAcquire(t, l, request())
			synctest.Wait()
			for i, n := range []*node{nodes[1], nodes[0], nodes[2]} {
				free = i + 1
				if err := n.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		for _, n := range at {
			if n < 2 {
				t.Fatalf("woken when %v nodes were free", at)
			}
		}
	})
}

func TestAWatchThatFailsEndsThoseOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		nodes[1].set("watch", behaviour{err: errDown})
		nodes[2].set("watch", behaviour{err: errDown})
		w := &watchCtx{node: nodes[0]}
		all := lockers(nodes)
		all[0] = w
		l, _ := redlock.New(all)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := l.Watch(ctx, "k", func() {})
		synctest.Wait()
		if err == nil || w.ctx.Err() == nil {
			t.Errorf("Watch = %v, and node 1 is watched on", err)
		}
	})
}

type watchCtx struct {
	*node
	ctx context.Context
}

func (w *watchCtx) Watch(ctx context.Context, key string, wake func()) error {
	w.ctx = ctx
	return w.node.Watch(ctx, key, wake)
}

func TestAnAttemptThatWasReleasedMeanwhileDoesNotSayItWasLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.set("acquire", behaviour{after: 10 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		time.AfterFunc(5*time.Millisecond, func() { _ = l.Release(context.Background(), locker.Lease{Key: req.Key, Token: req.Token}) })
		_, err := l.Acquire(t.Context(), req)
		t.Logf("Acquire = %v; %d hold", err, holding(nodes, req.Token))
		time.Sleep(time.Second)
		if err != nil && errors.Is(err, context.Canceled) == false && contains(err.Error(), "so late") {
			t.Errorf("Acquire = %v", err)
		}
	})
}

func contains(s, sub string) bool {
	for i := range len(s) - len(sub) + 1 {
		if s[i:i+len(sub)] == sub {
			return true
		}
	}
	return false
}

func TestExtendAndReleaseAreDecidedWhenAQuorumIsImpossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l := quorumOf(t, nodes)
		lease := mustAcquire(t, l, request())
		synctest.Wait()
		for i, n := range nodes[:4] {
			b := behaviour{err: errDown}
			if i == 3 {
				b = behaviour{after: time.Minute}
			}
			n.set("extend", b)
			n.set("release", b)
		}
		took(t, 0, func() { _, _ = l.Extend(t.Context(), lease, ttl) })
		took(t, 0, func() { _ = l.Release(t.Context(), lease) })
		time.Sleep(2 * time.Minute)
	})
}

func TestARefusedAttemptInTurnWaitsForOneLimitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[:3] {
			n.store.Set("k", "theirs", time.Minute)
		}
		nodes[4].set("release", behaviour{after: time.Minute})
		l := quorumOf(t, nodes, redlock.WithSequential())
		took(t, redlock.DefaultNodeLimit, func() { _, _ = l.Acquire(t.Context(), request()) })
		time.Sleep(2 * time.Minute)
	})
}

func TestTheLimitIsNeverLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes[:2] {
			n.set("release", behaviour{after: time.Minute})
		}
		for _, n := range nodes[1:] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond}) // so that the first has granted when it is decided
		}
		l, req := quorumOf(t, nodes), request()
		req.TTL = locker.MinTTL
		took(t, time.Millisecond+locker.MinTTL, func() { _, _ = l.Acquire(t.Context(), req) })
		time.Sleep(2 * time.Minute)
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
		time.Sleep(2 * time.Minute)
	})
}

func TestWhatAFailedExtensionHasMovedIsReleasedToo(t *testing.T) {
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

func TestARetransmissionIsNotGrantedOnceTheFirstHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{after: 300 * time.Millisecond})
		nodes[1].set("acquire", behaviour{after: 200 * time.Millisecond})
		var lease locker.Lease
		var err2 error
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = l.Acquire(ctx, req) }()
		go func() { lease, err2 = l.Acquire(t.Context(), req); close(done) }()
		time.Sleep(50 * time.Millisecond)
		cancel()
		<-done
		n := holding(nodes, req.Token)
		if err2 == nil && n < 2 {
			t.Errorf("granted %v on %d nodes", lease, n)
		}
		time.Sleep(time.Minute)
	})
}
