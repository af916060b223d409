package redlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestALateGrantIsExtendedAndReleasedWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		for _, n := range nodes[3:] {
			n.set("acquire", behaviour{after: 200 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		lease := mustAcquire(t, l, req)
		if n := holding(nodes, req.Token); n != 3 {
			t.Fatalf("%d nodes have the token", n)
		}
		time.Sleep(time.Second)
		if n := holding(nodes, req.Token); n != 5 {
			t.Fatalf("%d nodes have the token at the end", n)
		}
		for _, n := range nodes[:2] {
			n.store.Delete("k")
		}
		if _, err := l.Extend(t.Context(), lease, 2*ttl); err != nil {
			t.Errorf("Extend with three of five = %v", err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes have the token after the release", n)
		}
	})
}

func TestAGrantThatComesAfterTheReleaseIsReleasedOnce(t *testing.T) {
	for after, releases := range map[time.Duration]int{50 * time.Millisecond: 1, time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			nodes[2].set("acquire", behaviour{after: after})
			l, req := quorumOf(t, nodes), request()
			lease := mustAcquire(t, l, req)
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%d nodes have the token", n)
			}
			if n := nodes[2].count("release"); n != releases {
				t.Errorf("a grant after %v was released %d times; want %d", after, n, releases)
			}
		})
	}
}

func TestAGrantThatComesAfterAShortNodeLimitIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 20 * time.Millisecond
		late := memory.New()
		l, err := redlock.New([]locker.Locker{single.New(memory.New()), single.New(memory.New()), grantsLate{single.New(late), 3 * limit}},
			redlock.WithNodeLimit(limit))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context(), mustAcquire(t, l, request())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if token, _, _ := late.Get("k"); token != "" {
			t.Error("a node stays locked until the TTL")
		}
	})
}

// The attempt on node 3 fails when the lock has been released, or when the attempt as a whole has failed, and
// its request arrives later still: after the cleanup was answered. So the cleanup must be confirmed.
func TestAnAttemptThatFailsAfterTheReleaseIsCleanedUpUntilItCannotArrive(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes), request()
			nodes[2].set("acquire", behaviour{after: time.Second, err: errDown})
			if granted {
				if err := l.Release(t.Context(), mustAcquire(t, l, req)); err != nil {
					t.Fatal(err)
				}
			} else {
				for _, n := range nodes[:2] {
					n.store.Set("k", "theirs", time.Minute)
				}
				if _, err := l.Acquire(t.Context(), req); !errors.Is(err, locker.ErrHeld) {
					t.Fatalf("Acquire = %v", err)
				}
			}
			time.Sleep(1300 * time.Millisecond) // the cleanup was answered
			if _, err := nodes[2].Locker.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second) // less than the TTL
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("granted as a whole %v: %d nodes have the token", granted, n)
			}
		})
	}
}

// The connection of node 3 falls silent, and the library says when it has given that up. Calls go over
// another one meanwhile, so cleanups are answered, and the request of the attempt arrives after all of them.
func TestAnAttemptOnAConnectionThatIsStillOpenIsCleanedUpUntilThatIsClosed(t *testing.T) {
	for _, c := range []struct {
		granted bool          // the attempt as a whole, which is then released
		after   time.Duration // the error of node 3
	}{{false, 0}, {false, 50 * time.Millisecond}, {false, 3 * time.Second}, {true, 0}, {true, 50 * time.Millisecond}, {true, 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes), request()
			req.TTL = time.Minute
			late, closed := context.WithCancel(t.Context())
			nodes[2].set("acquire", behaviour{after: c.after, err: onTheWay{errDown, late}})
			if c.granted {
				lease := mustAcquire(t, l, req)
				time.Sleep(time.Second)
				if err := l.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			} else {
				for _, n := range nodes[:2] {
					n.store.Set("k", "theirs", time.Minute)
				}
				if _, err := l.Acquire(t.Context(), req); !errors.Is(err, locker.ErrHeld) {
					t.Fatalf("Acquire = %v", err)
				}
			}
			time.Sleep(20 * time.Second)
			if _, err := nodes[2].Locker.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			closed()
			time.Sleep(4 * time.Second) // less than the TTL
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%+v: %d nodes have the token", c, n)
			}
		})
	}
}

// onTheWay is an error of a call whose connection is silent, and is not given up.
type onTheWay struct {
	error
	late context.Context
}

func (e onTheWay) Late() context.Context { return e.late }

type grantsLate struct {
	locker.Locker
	after time.Duration
}

func (g grantsLate) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	time.Sleep(g.after)
	return g.Locker.Acquire(context.WithoutCancel(ctx), req)
}

func TestALateGrantOfARetransmissionIsReleasedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l, req := quorumOf(t, nodes), request()
		nodes[3].set("acquire", behaviour{after: 2 * time.Second})
		mustAcquire(t, l, req)
		synctest.Wait()
		nodes[3].set("acquire", behaviour{})
		nodes[4].set("acquire", behaviour{after: time.Second})
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

func TestAReleaseEndsAllAttemptsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		var lease contract.Lease
		for _, late := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			nodes[2].set("acquire", behaviour{after: late})
			lease = mustAcquire(t, l, req)
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond) // all nodes have answered one attempt
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

// unsent is an error of a call that sent nothing.
type unsent struct{}

func (unsent) Error() string { return "no connection" }
func (unsent) Unsent() bool  { return true }

func TestANodeThatNoAttemptHasReachedIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		nodes[1].set("acquire", behaviour{err: unsent{}})
		l, req := quorumOf(t, nodes), request()
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n, other := nodes[1].count("release"), nodes[2].count("release"); n != 0 || other != 1 || holding(nodes, req.Token) != 0 {
			t.Errorf("%d releases at the node that was not reached, %d at another; %d nodes have it", n, other, holding(nodes, req.Token))
		}
	})
}

// The retransmission has not reached node 3, which has the token from the first attempt.
func TestANodeThatOneOfTwoAttemptsHasReachedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[1].set("acquire", behaviour{err: unsent{}})
		mustAcquire(t, l, req)
		synctest.Wait()
		nodes[1].set("acquire", behaviour{})
		nodes[2].set("acquire", behaviour{err: unsent{}})
		lease := mustAcquire(t, l, req)
		synctest.Wait()
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
	})
}

func TestANodeWithoutASlotGetsNoCallAndTheOthersDecide(t *testing.T) {
	for need, granted := range map[int]bool{2: true, 3: false} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			l, req := quorumOf(t, nodes, redlock.WithQuorum(need)), request()
			redlock.TakeSlots(l, 2)
			_, err := l.Acquire(t.Context(), req)
			if (err == nil) != granted {
				t.Errorf("Acquire with %d of 3 = %v", need, err)
			}
			if !granted {
				wantQuorum(t, err, "too many attempts and cleanups wait for an answer of the server")
			}
			time.Sleep(time.Minute)
			if n := nodes[2].count("acquire") + nodes[2].count("release"); n != 0 {
				t.Errorf("%d calls at a node without a slot", n)
			}
		})
	}
}

// The possible token on node 3 is cleaned up for as long as the TTL. Until then the attempt is
// remembered, and not after that.
func TestAFailedRetransmissionForgetsTheAttemptsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{err: errDown})
		mustAcquire(t, l, req)
		synctest.Wait()
		if n := redlock.Flying(l); n != 1 {
			t.Errorf("%d attempts are remembered while a node may clean up; want 1", n)
		}
		nodes[1].set("acquire", behaviour{err: errDown})
		if lease, err := l.Acquire(t.Context(), req); err == nil {
			t.Errorf("granted %v by one of three", lease)
		}
		synctest.Wait()
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered when the token is spent", n)
		}
		time.Sleep(time.Minute)
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
	})
}

func TestARetransmissionIsNotGrantedOnceTheFirstHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{after: 300 * time.Millisecond})
		nodes[1].set("acquire", behaviour{after: 200 * time.Millisecond})
		var lease contract.Lease
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

func TestAnAttemptIsForgottenOnceAllNodesHaveAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		l, req := quorumOf(t, nodes), request()
		nodes[2].set("acquire", behaviour{after: time.Second})
		mustAcquire(t, l, req)
		_, _ = l.Acquire(t.Context(), request()) // held
		if redlock.Flying(l) == 0 {
			t.Error("nothing is remembered of attempts that are under way")
		}
		time.Sleep(3 * time.Second) // node 3 may execute the second attempt before the first
		if n := redlock.Flying(l); n != 0 {
			t.Errorf("%d attempts are remembered", n)
		}
	})
}

func TestAnAttemptThatWasReleasedMeanwhileIsNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.set("acquire", behaviour{after: 10 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		time.AfterFunc(5*time.Millisecond, func() {
			_ = l.Release(context.Background(), contract.Lease{Key: req.Key, Token: req.Token})
		})
		if lease, err := l.Acquire(t.Context(), req); err == nil {
			t.Errorf("granted %v after its release", lease)
		}
		time.Sleep(time.Second)
		if holding(nodes, req.Token) != 0 {
			t.Error("a node still has the token")
		}
	})
}

func TestTheErrorOfAnAttemptThatWasReleasedMeanwhileDoesNotSayThatItWasLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		for _, n := range nodes {
			n.set("acquire", behaviour{after: 10 * time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		time.AfterFunc(5*time.Millisecond, func() { _ = l.Release(context.Background(), contract.Lease{Key: req.Key, Token: req.Token}) })
		_, err := l.Acquire(t.Context(), req)
		t.Logf("Acquire = %v; %d hold", err, holding(nodes, req.Token))
		time.Sleep(time.Second)
		if err != nil && !errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "so late") {
			t.Errorf("Acquire = %v", err)
		}
	})
}

func TestTheErrorOfAGrantThatCameTooLateSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, req := newNodes(3), request()
		for _, n := range nodes {
			n.set("acquire", behaviour{hold: req.TTL - time.Millisecond}) // within the limit, after the end of the lease
		}
		l := quorumOf(t, nodes, redlock.WithNodeLimit(req.TTL))
		if _, err := l.Acquire(t.Context(), req); err == nil || !strings.Contains(err.Error(), "so late") {
			t.Errorf("Acquire = %v", err)
		}
		time.Sleep(time.Hour)
	})
}

func TestAFailedAttemptSendsTheReleasesThatAreNeededAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(7)
		for _, n := range nodes[:4] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond})
		}
		nodes[3].set("acquire", behaviour{hold: 50 * time.Millisecond}) // held, while the release waits for its answer
		nodes[4].set("release", behaviour{err: errDown})                // granted
		nodes[5].set("acquire", behaviour{after: time.Hour, err: errDown})
		l, req := quorumOf(t, nodes, redlock.WithQuorum(5)), request()
		if _, err := l.Acquire(t.Context(), req); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
		nodes[4].set("release", behaviour{})
		time.Sleep(ttl / 2)
		for i, want := range []int{0, 0, 0, 0, 2, 1, 1} {
			if n := nodes[i].count("release"); n != want && (i != 4 || n < want) { // node 5 until it answers
				t.Errorf("node %d got %d releases; want %d", i+1, n, want)
			}
		}
		if n := holding(nodes, req.Token); n != 0 {
			t.Errorf("%d nodes still have the token", n)
		}
		heal(nodes)
		time.Sleep(2 * time.Hour)
	})
}

func TestAFailedAcquireWaitsForItsReleasesForTheTTLAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(3)
		nodes[0].set("release", behaviour{after: time.Minute})
		for _, n := range nodes[1:] {
			n.store.Set("k", "theirs", time.Minute)
			n.set("acquire", behaviour{hold: time.Millisecond})
		}
		l, req := quorumOf(t, nodes), request()
		req.TTL = contract.MinTTL
		began := time.Now()
		_, _ = l.Acquire(t.Context(), req)
		if d := time.Since(began); d > 2*req.TTL {
			t.Errorf("Acquire with a TTL of %v took %v", req.TTL, d)
		}
		heal(nodes)
		time.Sleep(2 * time.Minute)
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
			t.Errorf("a node is still locked after %v", err)
		}
	})
}

type goexits struct{ *node }

func (g goexits) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	_, _ = g.node.Acquire(ctx, req)
	runtime.Goexit()
	return contract.Lease{}, nil
}

// TestATransferLeavesNothingOfTheHoldThatItHasTakenOver has a node that the quorum of the first process could
// do without. The attempt of that process reaches it after the Transfer, or the Transfer does not reach it.
func TestATransferLeavesNothingOfTheHoldThatItHasTakenOver(t *testing.T) {
	for name, c := range map[string]struct{ acquire, transfer behaviour }{
		"the attempt is late":                       {acquire: behaviour{after: 300 * time.Millisecond}},
		"the attempt is late, and the Transfer too": {behaviour{after: 400 * time.Millisecond}, behaviour{after: 200 * time.Millisecond}},
		"the Transfer is later than the release":    {behaviour{after: 3 * time.Second}, behaviour{after: 2 * time.Second}},
		"the Transfer is lost":                      {transfer: behaviour{err: errDown}},
		"the Transfer is not sent":                  {transfer: behaviour{err: unsent{}}},
		"the Transfer is lost after some time":      {transfer: behaviour{after: time.Second, err: errDown}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(5)
				nodes[4].set("acquire", c.acquire)
				nodes[4].set("transfer", c.transfer)
				first, second, old, req := quorumOf(t, nodes), quorumOf(t, nodes), request(), request()
				mustAcquire(t, first, old)
				synctest.Wait()
				lease, err := second.Transfer(t.Context(), old.Token, req)
				if err != nil {
					t.Fatal(err)
				}
				if err := second.Release(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				time.Sleep(8 * time.Second) // less than the ttl
				if n := holding(nodes, old.Token); n != 0 {
					t.Errorf("%d nodes have the old token", n)
				}
				if n := holding(nodes, req.Token); n != 0 {
					t.Errorf("%d nodes have the new token", n)
				}
			})
		})
	}
}

// TestATransferWithAnUnknownOutcomeLeavesNothing has a quorum of which no answer comes back. Its ticket is of no
// use then. One node gets the attempt of the first process after the Transfer, and one gets no Transfer.
func TestATransferWithAnUnknownOutcomeLeavesNothing(t *testing.T) {
	for _, late := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			first, second, old, req := quorumOf(t, nodes), quorumOf(t, nodes), request(), request()
			nodes[4].set("acquire", behaviour{after: 300 * time.Millisecond})
			mustAcquire(t, first, old)
			synctest.Wait()
			for _, n := range nodes[:3] {
				n.set("transfer", behaviour{hold: late, lost: errDown})
			}
			nodes[3].set("transfer", behaviour{err: errDown})
			if lease, err := second.Transfer(t.Context(), old.Token, req); err == nil || errors.Is(err, locker.ErrHeld) {
				t.Fatalf("Transfer = %v, %v; want an unknown outcome", lease, err)
			}
			time.Sleep(8 * time.Second)
			for _, token := range []string{old.Token, req.Token} {
				if n := holding(nodes, token); n != 0 {
					t.Errorf("%d nodes have the old token, or the new one; the answers come after %v", n, late)
				}
			}
			heal(nodes)
			if lease, err := second.Transfer(t.Context(), old.Token, request()); !errors.Is(err, locker.ErrHeld) {
				t.Errorf("the next Transfer = %v, %v; want %v", lease, err, locker.ErrHeld)
			}
		})
	}
}

// TestATransferThatIsNotSentLeavesTheTicket may be repeated.
func TestATransferThatIsNotSentLeavesTheTicket(t *testing.T) {
	for w := 3; w <= 5; w++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(5)
			l, old, req := quorumOf(t, nodes, redlock.WithQuorum(w)), request(), request()
			mustAcquire(t, l, old)
			synctest.Wait()
			for _, n := range nodes {
				n.set("transfer", behaviour{err: unsent{}})
			}
			if lease, err := l.Transfer(t.Context(), old.Token, request()); err == nil {
				t.Fatalf("Transfer = %v; want an error", lease)
			}
			synctest.Wait()
			heal(nodes)
			time.Sleep(4 * time.Second)
			lease, err := l.Transfer(t.Context(), old.Token, req)
			if err != nil {
				t.Fatalf("the next Transfer = %v", err)
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestATransferThatFailsLeavesTheHoldItself asks for a hold that a quorum does not have: it may be another's
// that is on its way.
func TestATransferThatFailsLeavesTheHoldItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newNodes(5)
		l, old := quorumOf(t, nodes), request()
		lease := mustAcquire(t, l, old)
		synctest.Wait()
		for _, n := range nodes[:2] {
			n.set("transfer", behaviour{err: errDown})
		}
		nodes[2].store.Delete("k")
		if lease, err := l.Transfer(t.Context(), old.Token, request()); err == nil {
			t.Fatalf("Transfer on two of five nodes = %v; want an error", lease)
		}
		time.Sleep(5 * time.Second)
		if n := holding(nodes, old.Token); n != 2 {
			t.Errorf("%d nodes have the old token; want the 2 that the Transfer has not reached", n)
		}
		_ = l.Release(t.Context(), lease)
	})
}
