package cleanup

import (
	"context"
	"sync"
	"sync/atomic"
)

// Ledger counts what one Client waits for when its program is about to end: attempts, releases and
// cleanups. The Client gives it to a strategy in the ctx of its calls, since there may be
// middleware between the two. A nil Ledger counts nothing. Ready to use when zero.
type Ledger struct {
	open atomic.Int64
	mu   sync.Mutex
	idle chan struct{} // closed when none is open; nil if nobody waits
}

// LedgerKey is the key of a *Ledger among the values of a ctx.
type LedgerKey struct{}

// From returns the Ledger in ctx, or nil. It costs a walk through the ctx: ask only when there is
// something to count.
func From(ctx context.Context) *Ledger {
	l, _ := ctx.Value(LedgerKey{}).(*Ledger)
	return l
}

// Begin counts what is not answered yet.
func (l *Ledger) Begin() {
	if l != nil {
		l.open.Add(1)
	}
}

// Done is called once for each Begin: the store has answered, or has forgotten by itself.
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

// Drain waits until all that was begun is done, or for ctx, and returns its error then.
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
	select { // whoever comes to zero now finds idle
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open is how many are not done.
func (l *Ledger) Open() int { return int(l.open.Load()) }

// ByCaller is the key of a value in the ctx of an attempt. It says that the caller cleans up after
// the attempt: [Queue.Keep] keeps no entry then. A quorum asks its nodes in this way, since a node
// might clean up late, after an extension that counted it.
type ByCaller struct{}
