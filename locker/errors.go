package locker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/printed"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Each of these answers one question; ask with [errors.Is].
var (
	// ErrHeld: someone else has the lock. That is normal, not a fault. See [HeldError].
	ErrHeld = errors.New("held by someone else")

	// ErrWaitLimit: the time given by [WithWait] is over. ErrHeld matches as well if the last
	// attempt that was answered said so, unless one was still under way at the end: that one may
	// have been granted. If the last attempts failed, the error of the last one is matched too.
	ErrWaitLimit = errors.New("wait limit reached")

	// ErrLost: the lease is over although nobody unlocked it. See [LostError] for the reason.
	ErrLost = errors.New("lock lost")

	// ErrReleased is the cause with which [Lock.Context] ends on Unlock.
	ErrReleased = errors.New("lock released")

	// ErrForeignKey: no lock with leases wrote the value under the key. If the value has no expiry,
	// ErrHeld matches as well and the wait goes on. If it is of another type, the wait ends.
	ErrForeignKey = errors.New("key holds something that is not a lease")
)

// Error is an operation that failed with a permanent error, or whose outcome is unknown. Ask for
// [ErrHeld] first: a wait that ended while the lock was held is an Error too (Op "lock"), and
// matches ErrHeld as well.
type Error struct {
	// acquire, watch, extend, release, transfer, resume; lock for the wait as a whole; campaign and
	// observe of package election
	Op  string
	Key string
	Err error

	// Of a [Client.Lock]; zero from others:
	Attempts  int  // that the call had made
	Contended bool // the lock was held, or another call of the Client was before this one in its line
}

func (e *Error) Error() string {
	return fmt.Sprintf("lockstep: %s %q: %s", e.Op, printed.Key(e.Key), text(e.Err))
}

func (e *Error) Unwrap() error { return e.Err }

// ErrorType names the kind of error in one word of low cardinality, fit for a metric. It is the
// word of the outermost error with a method ErrorType() string; or else "wait_limit",
// "foreign_key", "canceled", "timeout", "eof", "closed", "connection_refused" or
// "connection_reset"; or else "error".
func (e *Error) ErrorType() string {
	var typed interface{ ErrorType() string }
	var timeout net.Error
	switch {
	case errors.Is(e.Err, ErrWaitLimit):
		return "wait_limit"
	case errors.Is(e.Err, ErrForeignKey):
		return "foreign_key"
	case errors.As(e.Err, &typed):
		return typed.ErrorType()
	case errors.Is(e.Err, context.Canceled):
		return "canceled"
	case errors.Is(e.Err, context.DeadlineExceeded), errors.As(e.Err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(e.Err, io.EOF), errors.Is(e.Err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.Is(e.Err, net.ErrClosed), errors.Is(e.Err, io.ErrClosedPipe):
		return "closed"
	case isAny(e.Err, refusedConnection):
		return "connection_refused"
	case isAny(e.Err, resetConnection):
		return "connection_reset"
	}
	return "error"
}

func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// HeldError says that someone else has the lock. It matches [ErrHeld].
// Foreign is a field and no error that ends the wait, since locks of legacy recipes look like that.
type HeldError struct {
	Key      string
	Left     time.Duration // of the holder's lease, unless it is renewed; 0: unknown
	Attempts int           // that this call made
	Holds    int           // that are in the way, if the strategy admits several; 0: unknown
	Holder   string        // the label of the holder, or of one of them, if it has one: see [WithHolder]; or that of an [EvictedError]; empty: unknown
	Position int           // in line when the wait ended, as far as store and Client know; 1: the head, 0: not in line
	Foreign  bool          // the value has no expiry, so no lease put it there; then [ErrForeignKey] matches too
	Err      error         // of a Locker that says more, such as the votes of a quorum, or an [EvictedError]; nil: none
}

// asHeld is what err says of the holder, or nil if err does not match ErrHeld.
func asHeld(key string, err error) *HeldError {
	if err == nil || !errors.Is(err, ErrHeld) {
		return nil
	}
	var held *HeldError
	if errors.As(err, &held) {
		copied := *held
		return &copied
	}
	return &HeldError{Key: key, Err: err}
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lockstep: acquire %q: %s", printed.Key(e.Key), e.cause())
}

func (e *HeldError) cause() string {
	by, renewed := ErrHeld.Error(), " unless renewed"
	evicted, closed := e.Err.(*EvictedError) //nolint:errorlint // the votes of a quorum say more than one of them
	switch {
	case e.Foreign:
		return "held by a value without expiry, which no lease wrote"
	case closed:
		by, renewed = "closed after a forced release: "+evicted.Error(), ""
	case e.Err != nil:
		return text(e.Err)
	case e.Holder != "":
		by = fmt.Sprintf("held by %q", e.Holder)
	}
	if e.Left > 0 {
		return fmt.Sprintf("%s; free in %v%s", by, e.Left.Round(time.Millisecond), renewed)
	}
	return by
}

// Is matches ErrHeld, and ErrForeignKey for a value without expiry.
func (e *HeldError) Is(target error) bool {
	return target == ErrHeld || e.Foreign && target == ErrForeignKey
}

// Unwrap returns Err.
func (e *HeldError) Unwrap() error { return e.Err }

// ErrorType is "held".
func (e *HeldError) ErrorType() string { return "held" }

// LostReason says why a lock was lost, in one word.
type LostReason string

// The reasons of a [LostError].
const (
	LostExpired     LostReason = "expired"     // its time ran out: not extended, or the process was paused
	LostStolen      LostReason = "stolen"      // before its time, the store says that the key is gone or another's
	LostUnavailable LostReason = "unavailable" // its time ran out while extensions failed
	LostQuorum      LostReason = "quorum"      // too few nodes still have it
	LostMaxHold     LostReason = "max_hold"    // it was held as long as [WithMaxHold] allows
	LostEvicted     LostReason = "evicted"     // an operator ended it; Err has an [EvictedError]
	// nobody unlocked it and nothing referred to it any more, see [WithoutAbandonedRenewal]
	LostAbandoned LostReason = "abandoned"
)

// LostError says that a lease is over although nobody unlocked it, and why. It matches [ErrLost].
type LostError struct {
	Key    string
	Reason LostReason
	Err    error // of the last failed extension, or what else the cause is; nil: nothing more is known
}

// EvictedError says that an operator has ended a hold by force ([backends.Evictor]). It is found with
// [errors.As] in a [LostError] of that hold. It is found in a [HeldError] too, while the key stays
// closed because the evicted holder may work: no holder has the lock then, and Left says how long.
//
// [backends.Evictor]: https://pkg.go.dev/github.com/lockstep-go/lockstep/backends#Evictor
type EvictedError struct {
	By string // the label of the operator; empty: it has given none
}

func (e *EvictedError) Error() string {
	if e.By == "" {
		return "evicted by an operator"
	}
	return fmt.Sprintf("evicted by %q", e.By)
}

// Lost is the error for a lease that the store no longer has: [LostExpired] if its time is over,
// else [LostStolen]. Strategies return it from Extend and Release.
func Lost(lease contract.Lease) error {
	reason := LostStolen
	if !lease.Expires.IsZero() && lease.Ended() {
		reason = LostExpired
	}
	return &LostError{Key: lease.Key, Reason: reason}
}

func (e *LostError) Error() string {
	return fmt.Sprintf("lockstep: hold %q: %s", printed.Key(e.Key), e.cause())
}

func (e *LostError) cause() string {
	s := map[LostReason]string{
		LostExpired:     "its time ran out",
		LostStolen:      "the store no longer has it",
		LostUnavailable: "its time ran out while extensions failed",
		LostQuorum:      "too few nodes still have it",
		LostMaxHold:     "it was held as long as allowed",
		LostAbandoned:   "its Lock became garbage without Unlock",
		LostEvicted:     "it was released by force",
	}[e.Reason]
	if s == "" {
		s = string(e.Reason)
	}
	s = ErrLost.Error() + ": " + s
	if e.Err != nil {
		s += ": " + text(e.Err)
	}
	return s
}

// Is matches ErrLost, and what the error of the last failed extension matches. It matches no end of
// a ctx, since that ctx was not the caller's.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.Err, target)
}

// As looks at the error of the last failed extension.
func (e *LostError) As(target any) bool { return errors.As(e.Err, target) }

// ErrorType is "lost".
func (e *LostError) ErrorType() string { return "lost" }

// waitError is the end of a wait: why it ended, whether the lock was held at the last answer of the
// store, the last error since, and whether an attempt has no answer.
type waitError struct {
	why     error
	held    *HeldError // nil if nobody knows
	fault   error      // since the last answer; nil: none
	pending string     // which attempt has no answer; empty: none is under way
	unknown bool       // fault was not sent, and the outcome of an earlier attempt is unknown
}

func (e *waitError) Error() string {
	s := e.why.Error()
	if e.pending != "" {
		s += ": no answer from " + e.pending
		if e.fault != nil {
			s += "; before that " + text(e.fault)
		}
		return s
	}
	if e.fault != nil {
		s += ": " + text(e.fault)
	}
	if e.unknown {
		s += "; the outcome of an earlier attempt is unknown, and it is cleaned up in the background"
	}
	switch {
	case e.held == nil:
		return s
	case e.fault != nil:
		return s + "; before that " + e.held.cause()
	}
	return s + ": " + e.held.cause()
}

func (e *waitError) Unwrap() []error {
	errs := []error{e.why}
	if e.held != nil {
		errs = append(errs, e.held)
	}
	if e.fault != nil {
		errs = append(errs, e.fault)
	}
	return errs
}

// ErrorType is that of why the wait ended, not that the lock was held.
func (e *waitError) ErrorType() string { return (&Error{Err: e.why}).ErrorType() }

// deadlockError is a Lock that would wait for a hold which can't end before the Lock does.
type deadlockError struct{}

var errDeadlock error = deadlockError{}

func (deadlockError) Error() string {
	return "ctx descends from a hold of this key by the same Client, so Lock would wait for itself; " +
		"use that hold, or package reentrant with ContextWithOwner"
}

// Permanent says that repeating will not help.
func (deadlockError) Permanent() bool { return true }

// ErrorType is "deadlock".
func (deadlockError) ErrorType() string { return "deadlock" }

// text is the text of err, without the prefix "lockstep:" of this package's errors.
func text(err error) string {
	switch e := err.(type) { //nolint:errorlint // what wraps one of ours says more than it

	case interface{ cause() string }:
		return e.cause()
	case *Error:
		return e.Op + ": " + text(e.Err)
	}
	return err.Error()
}

// wrap adds operation and key to an error of a Locker that lacks them.
func wrap(op, key string, err error) error {
	switch err.(type) { //nolint:errorlint // what is wrapped needs its operation and key all the same

	case nil, *Error, *HeldError, *LostError:
		return err
	}
	return &Error{Op: op, Key: key, Err: err}
}

// isUnknown tells whether an attempt that ended with err may still be granted.
func isUnknown(err error) bool {
	return err != nil && !errors.Is(err, ErrHeld) && !outcome.Permanent(err) && !outcome.Unsent(err)
}

// errNoAnswer is the error of a Locker that ends its goroutine.
var errNoAnswer = errors.New("the locker did not answer")
