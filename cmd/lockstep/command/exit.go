package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// The exit codes. Those from 64 to 78 are of sysexits.h, and 124, 126 and 127 as timeout(1) has
// them.
const (
	exitWarnings    = 1
	exitUnsafe      = 2
	exitUsage       = 64
	exitUnavailable = 69
	exitLost        = 74
	exitHeld        = 75
	exitNoPerm      = 77
	exitMax         = 124
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // and the number of the signal
)

// exitError is an error with an exit code of its own. Without an err it prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode is the exit code of an error of the library.
func exitCode(err error) int {
	var own *exitError
	var votes *redlock.QuorumError
	var typed interface{ ErrorType() string }
	word := ""
	if errors.As(err, &typed) {
		word = typed.ErrorType()
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, locker.ErrHeld) && endedInOutage(err):
		return exitUnavailable
	case errors.Is(err, locker.ErrHeld):
		return exitHeld
	case errors.Is(err, locker.ErrLost):
		return exitLost
	case errors.Is(err, backends.ErrWrongType), errors.Is(err, locker.ErrForeignKey), errors.Is(err, backends.ErrForeign), word == "quarantined":
		return exitNoPerm
	case errors.As(err, &votes) && refuses(votes):
		return exitNoPerm
	case backends.Permanent(err):
		if word == "invalid" {
			return exitUsage
		}
		return exitNoPerm
	case errors.Is(err, context.Canceled):
		return exitSignal + 2
	}
	return exitUnavailable
}

// endedInOutage tells whether the last attempts of a wait with a limit failed. The error matches ErrHeld too if the
// lock was held when the store answered last, and the error of the last attempt stands beside that.
func endedInOutage(err error) bool {
	var parts interface{ Unwrap() []error }
	return errors.Is(err, locker.ErrWaitLimit) && errors.As(err, &parts) &&
		slices.ContainsFunc(parts.Unwrap(), func(part error) bool {
			return !errors.Is(part, locker.ErrWaitLimit) && !errors.Is(part, locker.ErrHeld)
		})
}

// refuses tells whether so many nodes refuse that no quorum is possible.
func refuses(e *redlock.QuorumError) bool {
	n := 0
	for _, v := range e.Votes {
		if v.Outcome == redlock.Failed && exitCode(v.Err) == exitNoPerm {
			n++
		}
	}
	return n > len(e.Votes)-e.Needed
}
