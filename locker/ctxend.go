package locker

import (
	"slices"
	"sync"
	"sync/atomic"
)

// ctxEnd is how a ctx of this package ends. Its channel is made only if somebody asks for it, and a
// call at its end needs no goroutine before: [context.WithCancel] and [context.AfterFunc] find the
// method AfterFunc. See bench/regress/mechanisms.md.
//
// Done and Err need no mutex while the ctx lasts, since many calls share one: see [sharedContext].
type ctxEnd struct {
	mu    sync.Mutex
	done  atomic.Value // of chan struct{}; made when it is asked for
	over  atomic.Bool
	err   error     // set before over
	calls []*func() // due at the end
}

func (e *ctxEnd) Done() <-chan struct{} {
	if done := e.done.Load(); done != nil {
		return done.(chan struct{})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if done := e.done.Load(); done != nil {
		return done.(chan struct{})
	}
	done := make(chan struct{})
	if e.over.Load() {
		close(done)
	}
	e.done.Store(done)
	return done
}

func (e *ctxEnd) Err() error {
	if e.over.Load() {
		return e.err
	}
	return nil
}

// AfterFunc calls f in a goroutine of its own once the ctx has ended. [context.AfterFunc] calls this
// method.
func (e *ctxEnd) AfterFunc(f func()) (stop func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over.Load() {
		go f()
		return func() bool { return false }
	}
	call := &f
	e.calls = append(e.calls, call)
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		i := slices.Index(e.calls, call)
		if i < 0 {
			return false
		}
		e.calls = slices.Delete(e.calls, i, i+1)
		return true
	}
}

// end ends the ctx with err. The first call counts.
func (e *ctxEnd) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over.Load() {
		return
	}
	e.err = err
	e.over.Store(true)
	if done := e.done.Load(); done != nil {
		close(done.(chan struct{}))
	}
	for _, call := range e.calls {
		go (*call)()
	}
	e.calls = nil
}
