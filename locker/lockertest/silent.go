package lockertest

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
)

// silent calls each with stores that never answer. The request is lost, or only the answer. The
// client library gives up at the end of its ctx, or never.
func (x *fixture) silent(lost lossOf, each func(hang backendtest.Fault)) {
	x.Helper()
	until := make(chan struct{})
	over := sync.OnceFunc(func() { close(until) })
	x.Cleanup(over)
	each(func(ctx context.Context, execute func(context.Context) error) error {
		lost(ctx, execute)
		return backendtest.Hang(ctx, nil)
	})
	each(func(ctx context.Context, execute func(context.Context) error) error {
		lost(ctx, execute)
		<-until
		return context.DeadlineExceeded
	})
	over()
}

// lossOf is what becomes of a request without an answer.
type lossOf func(ctx context.Context, execute func(context.Context) error)

func lostRequest(context.Context, func(context.Context) error) {}

func lostReply(ctx context.Context, execute func(context.Context) error) { _ = execute(ctx) }

// meets sets a fault for attempts, and returns a channel that is closed when an attempt meets it.
func (x *fixture) meets(f backendtest.Fault) <-chan struct{} {
	met := make(chan struct{})
	first := sync.OnceFunc(func() { close(met) })
	x.beneath.Fault(Acquire, func(ctx context.Context, execute func(context.Context) error) error {
		first()
		return f(ctx, execute)
	})
	return met
}

// overdue is how much longer than its TTL a call may take.
const overdue = 2 * time.Second

var silentSentences = []sentence{
	{"a store that never answers ends a TryLock or Lock without deadline within its TTL + 2 s, as unknown, and the calls behind it go on", needs(faults), func(x *fixture) {
		x.endsInSilence(lostRequest)
	}},
	{"what a store that never answers has granted to a TryLock or Lock without deadline is removed, and the calls behind it go on", needs(faults), func(x *fixture) {
		x.endsInSilence(lostReply)
	}},
	{"under WithWait an attempt without an answer is followed by another one, which gets the lock within 3 s of its release", needs(faults), func(x *fixture) {
		x.waitsInSilence(lostRequest)
	}},
	{"under WithWait an attempt that was granted without an answer is followed by another one, which gets the lock within 3 s of its release", needs(faults), func(x *fixture) {
		x.waitsInSilence(lostReply)
	}},
}

func (x *fixture) endsInSilence(lost lossOf) {
	x.Helper()
	x.silent(lost, func(hang backendtest.Fault) {
		for _, way := range []string{"TryLock", "Lock"} {
			x.inTime(x.short, func(key string, ttl time.Duration) bool { return x.endsIn(ttl, way, key, hang) })
		}
	})
}

// endsIn is false if the scene was not played: on a busy machine, the call may end before it meets the
// fault.
func (x *fixture) endsIn(ttl time.Duration, way, key string, hang backendtest.Fault) (played bool) {
	x.Helper()
	endless, c := context.WithoutCancel(x.Context()), x.client(locker.WithTTL(ttl))
	take := c.Lock
	if way == "TryLock" {
		take = c.TryLock
	}
	met := x.meets(hang)
	began := time.Now()
	first := x.async(func() error {
		_, err := take(endless, key)
		return err
	})
	select {
	case <-met:
	case err := <-first:
		x.beneath.Fault(Acquire, nil)
		if x.Bubble {
			x.Errorf("%s ended before it met the fault: %v", way, err)
		}
		return x.Bubble
	}
	behind := x.waits(endless, c, key, locker.WithWait(x.patience), locker.WithTTL(x.long))
	err := answer(x, way+" of a store that never answers returns", first)
	x.beneath.Fault(Acquire, nil)
	x.soon(way+" returned", began, ttl+overdue)
	x.wantUnknown(way, err)
	if isCtx(err) || outcome.Unsent(err) {
		x.Errorf("%s: error %v; want one that does not match the end of a ctx, and does not say that nothing was sent", way, err)
	}
	x.unlock(x.got(behind).Lock)
	x.emptyInTheEnd(key)
	return true
}

func (x *fixture) waitsInSilence(lost lossOf) {
	x.Helper()
	x.silent(lost, func(hang backendtest.Fault) {
		for played := false; !played; {
			played = x.waitsIn(hang, x.key(rand.Text()))
		}
	})
}

// waitsIn is false if the scene was not played: an attempt that was sent before the store fell
// silent was granted after the release.
func (x *fixture) waitsIn(hang backendtest.Fault, key string) (played bool) {
	x.Helper()
	g := x.grant(key, x.long)
	waiting := x.waits(x.Context(), x.client(locker.WithTTL(x.long)), g.Key, locker.WithWait(30*time.Second))
	x.pause(50 * time.Millisecond)
	x.stillWaits(waiting)
	met := x.meets(hang)
	x.release(g.Lease)
	released := time.Now()
	var next locked
	select {
	case <-met:
		x.pause(tick)
		x.beneath.Fault(Acquire, nil)
		next, played = x.got(waiting), true
		x.soon("Lock returned", released, 3*time.Second)
	case next = <-waiting:
		x.beneath.Fault(Acquire, nil)
		if next.err != nil {
			x.Fatalf("Lock: %v", next.err)
		}
	case <-time.After(x.patience):
		x.Fatalf("not within %v: an attempt meets the fault", x.patience)
	}
	x.unlock(next.Lock)
	x.emptyInTheEnd(g.Key)
	return played
}
