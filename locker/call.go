package locker

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// A Call is what a Client says to middleware beside the Request and the Lease. These two are facts about
// a lock; a Call is about one call of a Locker, and [CallOf] finds it in the ctx of that call. Without a
// Client there is none: the zero Call says no to everything.
//
// It is to a Locker what net/http/httptrace is to a RoundTripper.
type Call struct {
	said  *said       // of an Acquire or a Transfer
	notes calls.Notes // of an Extend or a Release
}

// CallOf is the Call of the Acquire, Transfer, Extend or Release whose ctx it is.
func CallOf(ctx context.Context) Call {
	switch says := ctx.Value(calls.Key{}).(type) {
	case *said:
		return Call{said: says}
	case calls.Notes:
		return Call{notes: says}
	}
	return Call{}
}

// Scoped tells, in an Acquire, that it is for [Client.Do]: the hold ends, at the latest, when the work
// returns.
func (c Call) Scoped() bool { return c.said != nil && c.said.scoped }

// Attempts is how many attempts a [Client.Lock] has made. It is 0 until the call is over, and inside the
// wait, where middleware sees each attempt. An error has its attempts in itself.
func (c Call) Attempts() int {
	if c.said == nil {
		return 0
	}
	return c.said.attempts
}

// Contended tells, once an Acquire has granted, that the lock was held before, or that another call of
// the Client was before this one in its line.
func (c Call) Contended() bool { return c.said != nil && c.said.contended }

// Abandoned tells, in one Extend of a hold, that its Lock has become garbage without Unlock: see
// [WithoutAbandonedRenewal].
func (c Call) Abandoned() bool { return c.notes&calls.Abandoned != 0 }

// Kept tells, in an Extend, that Unlock makes it to keep the key locked for the rest of a minimum hold;
// and, in a Release, that it follows such an Extend. See [WithMinHold].
func (c Call) Kept() bool { return c.notes&calls.Kept != 0 }

// OnHold lets middleware follow a hold. It is for an Acquire or a Transfer that has granted, before that
// returns; at any other time it does nothing. The Client calls begin once, when the hold begins. It
// calls the func that begin returns (if not nil) once, after the hold has ended, with the instant of the
// end and the cause. The context that begin returns (if not nil) is the parent of [Lock.Context]. The
// begin of outer middleware is called first, and its end last.
//
// A hold that is lost ends with its lease at the latest. A hold that is unlocked ends when Unlock
// is called; the func is called when the release is over, since that may find that the lock was
// lost. The cause matches [ErrLost], or it is [ErrReleased]. If the store never confirmed the
// release, the cause matches ErrReleased and is an [*Error] as well.
func (c Call) OnHold(begin func(context.Context, Lease) (context.Context, func(at time.Time, cause error))) {
	if s := c.said; s != nil {
		if s.hooks == nil && s.of != nil {
			s.hooks = s.of.few[:0]
		}
		s.hooks = append(s.hooks, begin)
	}
}

// said is what a Call tells of an Acquire, and the hooks that it collects.
type said struct {
	of        *effort // of the call of a Client; nil: of one attempt
	scoped    bool
	contended bool
	attempts  int
	hooks     []hook // those of inner middleware first
}

// hook is called when a hold begins. What it returns is called at the end of the hold.
type hook = func(context.Context, Lease) (context.Context, func(at time.Time, cause error))

// callContext is the ctx of a call that goes through middleware.
type callContext struct {
	context.Context
	ledger *cleanup.Ledger
	so     effort
}

func (c *callContext) Value(key any) any {
	switch key {
	case ledgerKey{}:
		return c.ledger
	case calls.Key{}:
		return &c.so.said
	}
	return c.Context.Value(key)
}

// effortOf finds, behind the middleware, the call of the Client.
func effortOf(ctx context.Context) (*effort, error) {
	if c := CallOf(ctx); c.said != nil && c.said.of != nil {
		return c.said.of, nil
	}
	return nil, errNoCall
}

var errNoCall = outcome.Invalidf("middleware of locker.WithMiddleware dropped the values of its ctx; pass on that ctx, or one below it")
