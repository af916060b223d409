package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// The garbage collector does not run in fake time, so these tests run in real time and wait until
// it has run. On a slow machine a lock may be lost meanwhile: they tell that from abandonment.

// noted is middleware that notes which leases are reported as abandoned, and why holds end.
type noted struct {
	locker.Locker
	mu        sync.Mutex
	abandoned map[string]int
	ended     map[string]error
}

func (n *noted) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if contract.CallOf(ctx).Abandoned() {
		n.mu.Lock()
		n.abandoned[lease.Key]++
		n.mu.Unlock()
	}
	return n.Locker.Extend(ctx, lease, ttl)
}

func (n *noted) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.Locker.Acquire(ctx, req)
	contract.CallOf(ctx).OnHold(func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
		return ctx, func(_ time.Time, cause error) {
			n.mu.Lock()
			n.ended[lease.Key] = cause
			n.mu.Unlock()
		}
	})
	return lease, err
}

func (n *noted) count(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.abandoned[key]
}

func (n *noted) end(key string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ended[key]
}

func newNoted(opts ...locker.ClientOption) (*noted, *spy, *locker.Client) {
	s := newSpy()
	n := &noted{Locker: s, abandoned: map[string]int{}, ended: map[string]error{}}
	opts = append(opts, locker.WithTTL(600*time.Millisecond), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
		n.Locker = next
		return n
	}))
	return n, s, locker.New(s, opts...)
}

// collect runs the garbage collector until holds returns true.
func collect(holds func() bool) {
	for !holds() {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

// forget locks key and drops the Lock. It returns what keep returns.
//
//go:noinline
func forget[T any](t *testing.T, c *locker.Client, key string, keep func(*locker.Lock) T, opts ...locker.Option) T {
	return keep(mustLock(t, c, key, opts...))
}

// longer is the TTL of a round. Each round has a longer one.
func longer(round int) locker.Option {
	return locker.WithTTL(time.Duration(1+round) * 600 * time.Millisecond)
}

func nothing(*locker.Lock) struct{} { return struct{}{} }

// reported forgets a lock that a renewal then reports, and returns its key and the end of its
// context. A slow machine may lose a lock before, so it forgets another one then.
func reported(t *testing.T, n *noted, c *locker.Client, name string) (key string, done <-chan struct{}) {
	t.Helper()
	for round := range 20 {
		key = fmt.Sprint(name, " ", round)
		done = forget(t, c, key, func(l *locker.Lock) <-chan struct{} { return l.Context().Done() }, longer(round))
		collect(func() bool { return n.count(key) > 0 || n.end(key) != nil })
		if n.count(key) > 0 {
			return key, done
		}
	}
	t.Fatalf("no renewal reports a forgotten lock; the last one ended with %v", n.end(key))
	return "", nil
}

func TestAnAbandonedLockIsReportedOnceAndStillRenewed(t *testing.T) {
	n, s, c := newNoted()
	key, done := reported(t, n, c, "key")
	other, _ := reported(t, n, c, "other") // a few renewals later
	if n.count(key) != 1 {
		t.Errorf("reported %d times; want once", n.count(key))
	}
	if because(n.end(key)) == locker.LostAbandoned {
		t.Errorf("the hold has ended: %v", n.end(key))
	}
	s.store.Delete(key)
	s.store.Delete(other)
	<-done
}

func TestALockThatIsReferredToIsNotAbandoned(t *testing.T) {
	n, _, c := newNoted(locker.WithoutAbandonedRenewal())
	lock := mustLock(t, c, "the Lock")
	ctx := forget(t, c, "its context", func(l *locker.Lock) context.Context { return l.Context() })
	child := forget(t, c, "a context below it", func(l *locker.Lock) context.Context {
		return context.WithValue(l.Context(), forgotten{}, nil)
	})
	after := forget(t, c, "a call at its end", func(l *locker.Lock) func() bool { return context.AfterFunc(l.Context(), func() {}) })
	for range 3 { // when it has found these three, the collector has run three times
		forget(t, c, "forgotten", nothing)
		collect(func() bool { return n.end("forgotten") != nil })
		n.mu.Lock()
		delete(n.ended, "forgotten")
		n.mu.Unlock()
	}
	for _, key := range []string{"the Lock", "its context", "a context below it", "a call at its end"} {
		if err := n.end(key); because(err) == locker.LostAbandoned {
			t.Errorf("%s: ended with %v", key, err)
		}
	}
	after()
	_ = lock.Unlock(t.Context())
	runtime.KeepAlive(ctx)
	runtime.KeepAlive(child)
}

func TestWithoutAbandonedRenewalAnAbandonedLockEndsWithItsLease(t *testing.T) {
	n, s, c := newNoted(locker.WithoutAbandonedRenewal())
	var err error
	for round := 0; because(err) != locker.LostAbandoned; round++ {
		if round == 20 {
			t.Fatalf("ended with %v", err)
		}
		key := fmt.Sprint("key ", round) // a slow machine may have lost the lock of the round before
		done := forget(t, c, key, func(l *locker.Lock) <-chan struct{} { return l.Context().Done() }, longer(round))
		collect(func() bool { return n.end(key) != nil })
		<-done
		err = n.end(key)
		if n.count(key) != 0 {
			t.Error("an Extend reports it as well; want only the end of the hold")
		}
	}
	mustMatch(t, err, locker.ErrLost)
	if want := ": lock lost: its Lock became garbage without Unlock"; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v; want\n%s", err, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range s.releases {
		if !lease.Ended() {
			t.Error("released before the lease had ended")
		}
	}
}

func because(cause error) locker.LostReason {
	var lost *locker.LostError
	if errors.As(cause, &lost) {
		return lost.Reason
	}
	return ""
}

func TestAnUnlockedLockIsNotAbandoned(t *testing.T) {
	n, _, c := newNoted()
	forget(t, c, "key", func(l *locker.Lock) error {
		for first := l.Lease().Expires; l.Context().Err() == nil && l.Lease().Expires.Equal(first); {
			time.Sleep(5 * time.Millisecond) // until it has been renewed
		}
		return l.Unlock(t.Context())
	})
	reported(t, n, c, "forgotten")
	if n.count("key") != 0 {
		t.Error("reported as abandoned")
	}
}

type forgotten struct{}
