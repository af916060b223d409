package locker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAnAttemptOnAConnectionThatHadEndedIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Once(backendtest.SetNX, backendtest.Stale, backendtest.LoseStale, backendtest.LoseStale)
		began := time.Now()
		l, err := c.TryLock(t.Context(), "key")
		if err != nil {
			t.Fatalf("TryLock = %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		tokens := map[string]bool{}
		for _, req := range s.acquires {
			tokens[req.Token] = true
		}
		if len(s.acquires) != 4 || len(tokens) != 4 {
			t.Errorf("%d attempts with %d tokens; want 4", len(s.acquires), len(tokens))
		}
		mustUnlock(t, l)
		if _, _, ok := s.store.Get("key"); ok {
			t.Error("something is left under the key")
		}
	})
}

func TestOnlyAnAttemptOnAConnectionThatHadEndedIsRepeated(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"an unknown outcome":                      backendtest.Fail,
		"a permanent error":                       backendtest.Permanent,
		"the end of a connection that was in use": func(context.Context, func(context.Context) error) error { return io.EOF },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.faults.Set(backendtest.SetNX, fault)
				if _, err := c.TryLock(t.Context(), "key"); err == nil || len(s.acquires) != 1 {
					t.Errorf("TryLock = %v after %d attempts", err, len(s.acquires))
				}
			})
		})
	}
}

// The first attempt may have reached the store, whatever is known of the one behind it.
func TestARepeatThatWasNotSentLeavesTheOutcomeUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		down := func(context.Context, func(context.Context) error) error {
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		s.faults.Once(backendtest.SetNX, backendtest.LoseStale, down)
		_, err := c.TryLock(t.Context(), "key")
		if err == nil || outcome.Unsent(err) || !strings.Contains(err.Error(), "cleanup runs until") {
			t.Errorf("TryLock = %v; want an unknown outcome with its cleanup", err)
		}
		if len(s.acquires) != 2 {
			t.Errorf("%d attempts; want 2", len(s.acquires))
		}
		synctest.Wait()
		if _, _, ok := s.store.Get("key"); ok {
			t.Error("the first attempt was not cleaned up")
		}
	})
}

func TestRepeatsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.SetNX, backendtest.Stale)
		if _, err := c.TryLock(t.Context(), "key"); err == nil {
			t.Error("TryLock = nil")
		}
		if n := len(s.acquires); n != 9 {
			t.Errorf("%d attempts of one call; want 9", n)
		}
		s.faults.Set(backendtest.SetNX, nil)
		mustUnlock(t, mustLock(t, c, "key")) // an answer: the budget is full again
		s.acquires = nil

		const calls, budget = 200, 64
		s.faults.Set(backendtest.SetNX, backendtest.Stale)
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				if _, err := c.TryLock(t.Context(), fmt.Sprint("key", i)); err == nil {
					t.Error("TryLock = nil")
				}
			})
		}
		all.Wait()
		if n := len(s.acquires); n <= calls || n > calls+budget {
			t.Errorf("%d attempts of %d calls; want %d more at most", n, calls, budget)
		}
		s.faults.Set(backendtest.SetNX, nil)
		time.Sleep(5 * time.Second) // for the gate
		s.acquires = nil
		s.faults.Once(backendtest.SetNX, backendtest.Stale)
		if l, err := c.TryLock(t.Context(), "key"); err == nil {
			t.Error("TryLock = nil; want an error, since nothing was answered since the budget was spent")
			mustUnlock(t, l)
		}
		mustUnlock(t, mustLock(t, c, "key"))
		s.faults.Once(backendtest.SetNX, backendtest.Stale)
		mustUnlock(t, mustLock(t, c, "key"))
	})
}

// Each call meets a connection that has ended, and the answer to its repeat counts like that to a first attempt.
func TestRepeatsThatAreAnsweredDoNotAddUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for i := range 200 {
			s.faults.Once(backendtest.SetNX, backendtest.Stale)
			l, err := c.TryLock(t.Context(), fmt.Sprint("key ", i))
			if err != nil {
				t.Fatalf("TryLock number %d = %v", i, err)
			}
			mustUnlock(t, l)
		}
	})
}

// The ticket moved to the first token, and only the reply was lost. With another token, Resume would
// find the ticket used, and the cleanup of the first would end the lock that the ticket was for.
func TestAResumeIsNotRepeatedWithAnotherToken(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ticket, err := mustLock(t, c, "key").Transfer(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.acquires = nil
		s.faults.Once(backendtest.All, backendtest.LoseStale)
		if _, err := c.Resume(t.Context(), ticket); err == nil || strings.Contains(err.Error(), "used") {
			t.Errorf("Resume = %v; want an unknown outcome", err)
		}
		if len(s.acquires) != 1 {
			t.Errorf("%d attempts; want 1", len(s.acquires))
		}
	})
}

// A ghost takes the only permit until it is cleaned up.
func TestARepeatDoesNotMeetItsOwnGhostInASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := new(backendtest.Faults)
		c := locker.New(semaphore.New(faults.Shared(memory.New()), 1))
		faults.Set(backendtest.Leave, backendtest.Late(100*time.Millisecond))
		faults.Once(backendtest.Enter, backendtest.LoseStale)
		l, err := c.TryLock(t.Context(), "key")
		if err != nil {
			t.Fatalf("TryLock = %v", err)
		}
		mustUnlock(t, l)
		time.Sleep(time.Minute)
	})
}

// New tokens come from above the quorum: a node that got one by itself would keep it when the lock is
// extended and released.
func TestANodeOfAQuorumDoesNotRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []locker.Locker
		all := make([]backendtest.Faults, 3)
		for i := range all {
			nodes = append(nodes, single.New(all[i].Queued(memory.New())))
		}
		locks, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		all[0].Once(backendtest.SetNX, backendtest.LoseStale)
		l, err := locker.New(locks).TryLock(t.Context(), "key")
		if err != nil {
			t.Fatalf("TryLock = %v", err)
		}
		synctest.Wait() // for the node, if the others were quicker
		if n := all[0].Calls(backendtest.SetNX); n != 1 {
			t.Errorf("the node was asked %d times", n)
		}
		mustUnlock(t, l)
		time.Sleep(time.Minute)
	})
}
