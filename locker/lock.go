package locker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// Lock is a lock that is held: it is born held, by [Client.Lock] or [Client.TryLock], and never reused. Safe for
// concurrent use.
type Lock struct {
	_ [0]sync.Mutex // a copy would not be told from one that was forgotten, so go vet reports it
	// refers to the hold, and to nothing here: what keeps a hold alive does not keep its Lock
	ctx holdContext
}

// Context descends from the ctx given to Lock. It ends with cause [ErrReleased] when Unlock is called, and with a cause
// that matches [ErrLost] when the lock is lost: no later than the lease's Expires, by this process's clocks, whatever
// the store or the network does. A process that was paused past that finds it ended at its next look at Err or Done.
//
// When the ctx given to Lock ends, so does this one, and the lock is extended no more; Unlock still releases it.
// What the work does between two looks at its context, or what it has sent already, no lock can stop: see fencing.
func (l *Lock) Context() context.Context { return &l.ctx }

// Lease is what the holder believes now; Expires moves with every extension.
func (l *Lock) Lease() Lease { return l.ctx.hold.leaseNow() }

// Key is the name of the lock.
func (l *Lock) Key() string { return l.ctx.hold.lease.Key }

// Fence is the number of this grant; 0 if the strategy does not number its grants. It is greater than that of every grant of
// the key that was answered before this one was asked for, as long as the store keeps what the strategy counts by: its
// counter or a clock that does not go back (package fenced), or the counters of all but as many nodes as the quorum
// bears (redlock.NewFenced). A resource that keeps the greatest it has seen can refuse a holder who is too late.
func (l *Lock) Fence() uint64 { return l.ctx.hold.lease.Fence }

// String tells of the lease, and whether the hold is over, without the Token.
func (l *Lock) String() string {
	if l.ctx.Err() != nil {
		return "lock no longer held, " + l.Lease().String()
	}
	return "lock held, " + l.Lease().String()
}

// GoString hides the Token from %#v.
func (l *Lock) GoString() string { return "&locker.Lock{" + l.String() + "}" }

// Format hides the Token, and what changes meanwhile, from every other verb.
func (l *Lock) Format(s fmt.State, verb rune) { format(s, verb, l) }

// LogValue gives log/slog the lease.
func (l *Lock) LogValue() slog.Value { return l.Lease().LogValue() }
