package lockertest

import (
	"context"
	"errors"
	"time"
)

// A Disturber reaches the store beneath the Locker under test other than through the Locker, as an operator, other
// software or a bad network would. Safe for concurrent use. What fails here fails the test: an implementation keeps the
// t given to Harness.New. What a harness can't do is listed in Harness.Cannot, and is never called.
type Disturber interface {
	// Holds tells whether anything lies under key now: on any node, if there are several. What a strategy keeps
	// elsewhere for longer than a lease, such as a counter, does not count.
	Holds(key string) bool
	// Delete removes what lies under key, if anything. Whether it wakes those who watch is left open.
	Delete(key string)
	// Expire ends the life of what lies under key, as a store does whose clock jumps ahead. It wakes nobody.
	Expire(key string)
	// SetForeign puts a value without expiry under key whatever was there, as other software might do.
	SetForeign(key string)
	// SetOther puts a value of another type than the strategy writes under key, whatever was there.
	SetOther(key string)

	// Fault gives every call of op that begins from now on that fault, until it is changed; the zero Fault is none.
	// Calls that are already in a fault stay in it.
	Fault(op Op, f Fault)
	// FaultOnce gives the next calls of op these faults, one each in that order. They come before what Fault has set.
	FaultOnce(op Op, f ...Fault)
}

// An Op names what the Locker asks of its store. Where that takes several calls, a fault meets each of them.
type Op string

// The operations. Release stands also for the clean-up after an attempt whose outcome is unknown. All stands for every
// one, as an argument of Fault alone.
const (
	Acquire Op = "acquire"
	Extend  Op = "extend"
	Release Op = "release"
	Watch   Op = "watch"
	All     Op = "all"
)

// A Disturbance names one thing that a Disturber does.
type Disturbance string

// What a Disturber does to keys, and the kinds of faults.
const (
	Delete     Disturbance = "Delete"
	Expire     Disturbance = "Expire"
	SetForeign Disturbance = "SetForeign"
	SetOther   Disturbance = "SetOther"

	Fail Disturbance = "Fail" // the request is lost; the caller gets an error that leaves that open
	// an error whose method Permanent returns true; nothing is executed
	Refuse        Disturbance = "Refuse"
	Hang          Disturbance = "Hang"          // the request is lost; answers when ctx is done, with its error
	LoseReply     Disturbance = "LoseReply"     // executed; the caller gets an error that leaves that open
	LoseReplyHang Disturbance = "LoseReplyHang" // executed; answers when ctx is done, with its error
	Late          Disturbance = "Late"          // executed after Delay, whatever ctx says, then answered
	LateReply     Disturbance = "LateReply"     // executed, but answered after Delay, whatever ctx says
	Stall         Disturbance = "Stall"         // executed when Until is closed, whatever ctx says, then answered
	Ghost         Disturbance = "Ghost"         // an error at once, but the request is on its way: executed after Delay
)

var disturbances = []Disturbance{
	Delete, Expire, SetForeign, SetOther,
	Fail, Refuse, Hang, LoseReply, LoseReplyHang, Late, LateReply, Stall, Ghost,
}

// A Fault is what becomes of a call to the store. Harnesses that stand in the network look at the Kind; those within
// the process use Apply.
type Fault struct {
	Kind  Disturbance     // empty: none
	Delay time.Duration   // of Late, LateReply and Ghost
	Until <-chan struct{} // of Stall; a call that hangs under a ctx that does not end fails then, too
}

// ErrInjected is matched by the errors that Apply makes up. Those of a ctx are returned as they are.
var ErrInjected = errors.New("injected fault")

// Apply makes one call meet the fault. execute passes the call on to the store. When Apply returns nil the caller gets
// the store's answer, otherwise that error and nothing else. The ctx must not be done yet: a store does not begin then.
func (f Fault) Apply(ctx context.Context, execute func(context.Context) error) error {
	switch f.Kind {
	case Fail:
		return ErrInjected
	case Refuse:
		return refusal{ErrInjected}
	case Hang:
		return f.hang(ctx)
	case LoseReply:
		_ = execute(ctx)
		return ErrInjected
	case LoseReplyHang:
		_ = execute(ctx)
		return f.hang(ctx)
	case Late:
		time.Sleep(f.Delay)
		return execute(context.WithoutCancel(ctx))
	case LateReply:
		err := execute(ctx)
		time.Sleep(f.Delay)
		return err
	case Stall:
		<-f.Until
		return execute(context.WithoutCancel(ctx))
	case Ghost:
		go func() {
			time.Sleep(f.Delay)
			_ = execute(context.WithoutCancel(ctx))
		}()
		return ErrInjected
	}
	return execute(ctx)
}

func (f Fault) hang(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.Until:
		return ErrInjected
	}
}

type refusal struct{ error }

func (refusal) Permanent() bool { return true }
func (r refusal) Unwrap() error { return r.error }
