// Package outcome makes errors that tell what became of a call, and asks them. An error tells it by
// methods, so that one that others make can tell it, too: Permanent() bool and Unsent() bool. An error
// that tells nothing means that the outcome is unknown: see backends.Store. Package backends shows all
// this to the authors of stores.
package outcome

import (
	"errors"
	"fmt"
	"net"
)

// Invalid is the error of a call or an option that the caller must change. It is permanent, and nothing
// was sent.
type Invalid string

// Invalidf formats an Invalid.
func Invalidf(format string, args ...any) error { return Invalid(fmt.Sprintf(format, args...)) }

func (e Invalid) Error() string { return string(e) }

// Permanent says that repeating will not help.
func (Invalid) Permanent() bool { return true }

// ErrorType is "invalid".
func (Invalid) ErrorType() string { return "invalid" }

// AsPermanent is err, of which repeating cannot cure the cause: nothing was done.
func AsPermanent(err error) error { return permanent{err} }

type permanent struct{ error }

func (permanent) Permanent() bool   { return true }
func (permanent) ErrorType() string { return "invalid" }
func (e permanent) Unwrap() error   { return e.error }

// AsUnsent is err, of a call that has done nothing and may be repeated.
func AsUnsent(err error) error { return unsent{err} }

// NotSent is [AsUnsent], and its text ends with that.
func NotSent(err error) error { return unsent{fmt.Errorf("%w; nothing was sent", err)} }

// NotDone is [AsUnsent], and its text ends with that.
func NotDone(err error) error { return unsent{fmt.Errorf("%w; nothing was done", err)} }

type unsent struct{ error }

func (unsent) Unsent() bool    { return true }
func (e unsent) Unwrap() error { return e.error }

// Permanent tells whether err says, by a method Permanent() bool, that the store did nothing and
// that a repetition would do nothing either: a missing permission, bad input.
func Permanent(err error) bool {
	if err == nil { // the usual case, in which errors.As would allocate
		return false
	}
	var r interface{ Permanent() bool }
	return errors.As(err, &r) && r.Permanent()
}

// Unsent tells whether err says, by a method Unsent() bool, that nothing was sent or done, or that
// there was no connection. If a call was repeated, this holds only for its last try.
func Unsent(err error) bool {
	if err == nil {
		return false
	}
	var u interface{ Unsent() bool }
	if errors.As(err, &u) { // it speaks for all errors that it wraps
		return u.Unsent()
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
