package cleanup

import (
	"context"
	"sync"
	"sync/atomic"
)

// Ledger counts the attempts, releases and cleanups of one Client that are not answered, so that a
// program can wait for them before it ends. A nil Ledger counts nothing. The zero Ledger is ready to
// use.
type Ledger struct {
	open atomic.Int64
	mu   sync.Mutex
	idle chan struct{} // closed when none is open; nil if nobody waits
}

// Count counts one more that is not answered, until done is called for the first time.
func (l *Ledger) Count() (done func()) {
	l.Begin()
	var over atomic.Bool
	return func() {
		if !over.Swap(true) {
			l.Done()
		}
	}
}

// Begin counts one more that is not answered.
func (l *Ledger) Begin() {
	if l != nil {
		l.open.Add(1)
	}
}

// Done is called once for each Begin: the store has answered, or the key has expired.
func (l *Ledger) Done() {
	if l != nil && l.open.Add(-1) == 0 {
		l.tell()
	}
}

// tell ends every Drain, unless something has begun since.
func (l *Ledger) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil && l.open.Load() == 0 {
		close(l.idle)
		l.idle = nil
	}
}

// Drain waits until all are done. If ctx ends first, it returns the cause.
func (l *Ledger) Drain(ctx context.Context) error {
	l.mu.Lock()
	if l.open.Load() == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select { // a Done that reaches zero now sees idle
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open returns how many are not done.
func (l *Ledger) Open() int { return int(l.open.Load()) }
