package legacy_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/history"
)

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

const (
	long  = 10 * time.Minute       // a lease that does not end during a test
	brief = 100 * time.Millisecond // one whose end the test waits for
)

// inMemory returns a store that accepts long leases.
func inMemory() *memory.Store { return memory.New(memory.WithMaxTTL(long)) }

// A holder has the lock and believes in it.
type holder struct {
	who   string
	lock  *locker.Lock
	since int64
}

// gets waits for the lock, and fails the test if who does not get it.
func gets(t *testing.T, who string, l locker.Locker, ttl time.Duration) holder {
	t.Helper()
	h := <-getting(t, who, l, ttl)
	if h.lock == nil {
		t.FailNow()
	}
	return h
}

// getting calls gets in the background.
func getting(t *testing.T, who string, l locker.Locker, ttl time.Duration) <-chan holder {
	t.Helper()
	got := make(chan holder, 1)
	go func() {
		lock, err := locker.New(l, locker.WithTTL(ttl), locker.WithoutRenewal()).Lock(t.Context(), "key", locker.WithWait(patience))
		if err != nil {
			t.Errorf("%s: Lock = %v", who, err)
		} else {
			t.Cleanup(func() { _ = lock.Unlock(context.Background()) }) // whatever its state
		}
		got <- holder{who, lock, time.Now().UnixNano()}
	}()
	return got
}

// wantHeld makes one attempt, which must find the lock held.
func wantHeld(t *testing.T, who string, l locker.Locker, ttl time.Duration) *locker.HeldError {
	t.Helper()
	_, err := l.Acquire(t.Context(), request(ttl)) // a Client gives up after the ttl
	var held *locker.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("%s: Acquire = %v, want it held", who, err)
	}
	return held
}

// allHold checks that all holders believe that they hold the lock now, and that this is a
// violation.
func allHold(t *testing.T, holders ...holder) {
	t.Helper()
	now := time.Now().UnixNano()
	var holds []history.Hold
	for _, h := range holders {
		if h.lock == nil {
			t.Fatalf("%s did not get the lock", h.who)
		}
		if cause := context.Cause(h.lock.Context()); cause != nil {
			t.Fatalf("%s does not hold the lock: %v", h.who, cause)
		}
		holds = append(holds, history.Hold{Key: "key", Who: h.who, Start: h.since, End: now + 1})
	}
	found := history.Overlaps(holds)
	if len(found) != len(holders)-1 {
		t.Fatalf("%d hold the lock, and the checker finds %v", len(holders), found)
	}
	t.Log(found)
}

// A pausing store stops before its next call of op until goOn is called, like a process that gets
// no processor time.
type pausing struct {
	backends.LegacyStore
	arrived, released chan struct{}
}

func pauseBefore(op backendtest.Op, store backends.LegacyStore) pausing {
	faults := new(backendtest.Faults)
	p := pausing{faults.Legacy(store), make(chan struct{}), make(chan struct{})}
	faults.Once(op, func(ctx context.Context, execute func(context.Context) error) error {
		close(p.arrived)
		<-p.released
		return execute(ctx)
	})
	return p
}

// goOn returns when the paused call and everything after it is done.
func (p pausing) goOn(done <-chan error) error {
	close(p.released)
	return <-done
}

// asks makes an attempt in the background.
func asks(t *testing.T, l locker.Locker, ttl time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context(), request(ttl))
		done <- err
	}()
	return done
}

func request(ttl time.Duration) contract.Request {
	return contract.Request{Key: "key", Token: contract.NewToken(), TTL: ttl}
}

// dies makes an attempt in a process that is killed before its next call of op: the rest never
// runs.
func dies(t *testing.T, before backendtest.Op, store backends.LegacyStore, recipe func(backends.LegacyStore) locker.Locker) {
	t.Helper()
	faults := new(backendtest.Faults)
	faults.Once(before, func(context.Context, func(context.Context) error) error {
		runtime.Goexit()
		return nil
	})
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_, err := recipe(faults.Legacy(store)).Acquire(t.Context(), request(long))
		t.Errorf("Acquire returned: %v", err)
	}()
	<-dead
}
