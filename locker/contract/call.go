package contract

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
)

// A Call is what a Client says to middleware beside the Request and the Lease. These two are facts about
// a lock; a Call is about one call of a Locker, and [CallOf] finds it in the ctx of that call. Without a
// Client there is none: the zero Call says no to everything.
//
// It is to a Locker what net/http/httptrace is to a RoundTripper.
type Call struct {
	acquires acquires    // of an Acquire or a Transfer
	notes    calls.Notes // of an Extend or a Release
}

// acquires is what a Client says of an Acquire or a Transfer.
type acquires interface {
	Scoped() bool
	Attempts() int
	Contended() bool
	OnHold(begin Begin)
}

// Begin is called when a hold begins: see [Call.OnHold].
type Begin = func(ctx context.Context, lease Lease) (held context.Context, end func(at time.Time, cause error))

// CallOf is the Call of the Acquire, Transfer, Extend or Release whose ctx it is.
func CallOf(ctx context.Context) Call {
	switch says := ctx.Value(calls.Key{}).(type) {
	case acquires:
		return Call{acquires: says}
	case calls.Notes:
		return Call{notes: says}
	}
	return Call{}
}

// Scoped tells, in an Acquire, that it is for locker.Client.Do: the hold ends, at the latest, when the work
// returns.
func (c Call) Scoped() bool { return c.acquires != nil && c.acquires.Scoped() }

// Attempts is how many attempts a locker.Client.Lock has made. It is 0 until the call is over, and inside the
// wait, where middleware sees each attempt. An error has its attempts in itself.
func (c Call) Attempts() int {
	if c.acquires == nil {
		return 0
	}
	return c.acquires.Attempts()
}

// Contended tells, once an Acquire has granted, that the lock was held before, or that another call of
// the Client was before this one in its line.
func (c Call) Contended() bool { return c.acquires != nil && c.acquires.Contended() }

// Abandoned tells, in one Extend of a hold, that its Lock has become garbage without Unlock: see
// locker.WithoutAbandonedRenewal.
func (c Call) Abandoned() bool { return c.notes&calls.Abandoned != 0 }

// Kept tells, in an Extend, that Unlock makes it to keep the key locked for the rest of a minimum hold;
// and, in a Release, that the key was kept until then. See locker.WithMinHold.
func (c Call) Kept() bool { return c.notes&calls.Kept != 0 }

// OnHold lets middleware follow a hold. It is for an Acquire or a Transfer that has granted, before that
// returns; at any other time it does nothing. The Client calls begin once, when the hold begins. It
// calls the func that begin returns (if not nil) once, after the hold has ended, with the instant of the
// end and the cause. The context that begin returns (if not nil) is the parent of locker.Lock.Context. The
// begin of outer middleware is called first, and its end last.
//
// A hold that is lost ends with its lease at the latest. A hold that is unlocked ends when Unlock
// is called; the func is called when the release is over, since that may find that the lock was
// lost. The cause matches locker.ErrLost, or it is locker.ErrReleased. If the store never confirmed the
// release, the cause matches ErrReleased and is an *locker.Error as well.
func (c Call) OnHold(begin Begin) {
	if c.acquires != nil {
		c.acquires.OnHold(begin)
	}
}
