package locker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/printed"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Lock is a lock that is held. [Client.Lock] and [Client.TryLock] return it held; it is never
// reused. Safe for concurrent use. The zero Lock, and nil, hold nothing: their context has ended, and
// each method that returns an error says so.
type Lock struct {
	_ [0]sync.Mutex // go vet reports a copy: the runtime would take the original for abandoned
	// refers to the hold, which does not refer back after the first renewal: see extensions.handle
	ctx holdContext
}

// Context descends from the ctx given to Lock. It ends with cause [ErrReleased] when Unlock is
// called. It ends with a cause that matches [ErrLost] when the lock is lost: no later than the
// lease's Expires, by this process's clocks, whatever the store or the network does. If the process
// was paused past Expires, the next call of Err or Done finds the context ended.
//
// When the ctx given to Lock ends, so does this one, and the lock is renewed no more; Unlock still
// releases it. No lock can stop what the work does between two looks at its context, nor what it
// has sent already: see fencing.
func (l *Lock) Context() context.Context {
	if h := l.hold(); h.client == nil {
		return &holdContext{h}
	}
	return &l.ctx
}

// Lease is the lease as the holder knows it now; Expires moves with every extension.
func (l *Lock) Lease() contract.Lease { return l.hold().leaseNow() }

// Key is the name of the lock.
func (l *Lock) Key() string { return l.hold().lease.Key }

// Fence is the number of this grant; 0 if the strategy does not number its grants. It is greater
// than the number of every grant of the key that was answered before the request for this one. That
// holds as long as the store keeps what the strategy counts by: a counter, or a clock that does not
// go back (package fenced), or the counters of enough nodes for a quorum (redlock.NewFenced). A
// resource that keeps the greatest number it has seen can refuse a holder that is too late.
func (l *Lock) Fence() uint64 { return l.hold().lease.Fence }

// String gives the lease without the Token, and whether the hold is over.
func (l *Lock) String() string {
	if l.Context().Err() != nil {
		return "lock no longer held, " + l.Lease().String()
	}
	return "lock held, " + l.Lease().String()
}

// GoString hides the Token from %#v.
func (l *Lock) GoString() string { return "&locker.Lock{" + l.String() + "}" }

// Format hides the Token from every other verb, and reads no field that may change meanwhile.
func (l *Lock) Format(s fmt.State, verb rune) { printed.Format(s, verb, l) }

// LogValue gives log/slog the lease.
func (l *Lock) LogValue() slog.Value { return l.Lease().LogValue() }

// hold is what the Lock refers to. For a Lock that no Client has made it is a hold that is over and
// has no Client.
func (l *Lock) hold() *hold {
	if l != nil && l.ctx.hold != nil {
		return l.ctx.hold
	}
	nothing := context.Background()
	return &hold{given: nothing, parent: nothing, over: over{cause: errNoLock}}
}

var errNoLock = outcome.Invalidf("the Lock was not made by a Client")
