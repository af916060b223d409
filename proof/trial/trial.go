// Package trial runs the body of a test apart and notes its failures. They are wanted, since what it
// tests is broken on purpose; or the machine was too busy, and the body runs again.
package trial

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Failures runs a body in place of a test, and returns what it complains of. After limit the ctx of the body
// ends, so that a body that waits for what does not come fails soon.
func Failures(t testing.TB, limit time.Duration, body func(t testing.TB)) []string {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	try := &trial{TB: t, ctx: ctx}
	apart(func() { body(try) })
	cancel() // before the cleanups, as in package testing
	for f := try.lastCleanup(); f != nil; f = try.lastCleanup() {
		apart(f)
	}
	try.mu.Lock()
	defer try.mu.Unlock()
	return try.failures
}

// apart runs f on a goroutine of its own, which a Fatal may end.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// A trial notes the failures of a test, and leaves the real one alone.
type trial struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	cleanups []func()
	failures []string
}

func (t *trial) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, text)
}

func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// lastCleanup takes the cleanup that was registered last. It is nil if none is left.
func (t *trial) lastCleanup() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.cleanups) - 1
	if last < 0 {
		return nil
	}
	f := t.cleanups[last]
	t.cleanups = t.cleanups[:last]
	return f
}

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

func (t *trial) Context() context.Context          { return t.ctx }
func (t *trial) Fail()                             { t.note("failed") }
func (t *trial) FailNow()                          { t.note("failed"); runtime.Goexit() }
func (t *trial) Error(args ...any)                 { t.note(fmt.Sprint(args...)) }
func (t *trial) Errorf(format string, args ...any) { t.note(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.note(fmt.Sprint(args...)); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) {
	t.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
