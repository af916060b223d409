package sloglocker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lockstep-go/lockstep/locker"
)

// An Event is what a record tells, and its message.
type Event string

// The events, and their levels unless [WithLevel] gives another.
const (
	Acquired      Event = "lock acquired"       // Debug
	Busy          Event = "lock busy"           // Debug: someone else has it, and the call was not to wait, or to ask no more
	WaitCanceled  Event = "lock wait canceled"  // Debug: its ctx was, so whoever asked knows, and may just be shutting down
	WaitTimedOut  Event = "lock wait timed out" // Warn: the limit of the wait, or the deadline of its ctx
	AcquireFailed Event = "lock acquire failed" // Error: the store could not tell, or refused

	Extended     Event = "lock extended"         // Debug
	ExtendFailed Event = "lock extension failed" // Warn: the lease lasts, and another extension will follow

	// Warn: its Lock became garbage without Unlock, and it is renewed on; once
	Abandoned Event = "lock abandoned"

	Released        Event = "lock released"                      // Debug
	ReleaseRepeated Event = "lock release not confirmed"         // Warn: the lease lasts, and the release is repeated
	ReleaseFailed   Event = "lock release failed"                // Error: nobody knows that the lock is free before its lease ends
	Lost            Event = "lock lost"                          // Error: its lease was over before Unlock, or Unlock found that it was
	HeldTooLong     Event = "lock lost: held as long as allowed" // Warn: see locker.WithMaxHold
)

var levels = map[Event]slog.Level{
	Acquired:      slog.LevelDebug,
	Busy:          slog.LevelDebug,
	WaitCanceled:  slog.LevelDebug,
	WaitTimedOut:  slog.LevelWarn,
	AcquireFailed: slog.LevelError,

	Extended:     slog.LevelDebug,
	ExtendFailed: slog.LevelWarn,
	Abandoned:    slog.LevelWarn,

	Released:        slog.LevelDebug,
	ReleaseRepeated: slog.LevelWarn,
	ReleaseFailed:   slog.LevelError,
	Lost:            slog.LevelError,
	HeldTooLong:     slog.LevelWarn,
}

// acquireEvent tells apart what an Acquire under ctx ended with.
func acquireEvent(ctx context.Context, err error) (event Event, outcome string) {
	over := ctx.Err()
	switch {
	case err == nil:
		return Acquired, "acquired"
	case errors.Is(err, locker.ErrWaitLimit):
		return WaitTimedOut, "timeout"
	case over != nil && errors.Is(err, over) && errors.Is(over, context.DeadlineExceeded):
		return WaitTimedOut, "timeout"
	case over != nil && errors.Is(err, over):
		return WaitCanceled, "canceled"
	case errors.Is(err, locker.ErrHeld):
		return Busy, "busy"
	}
	return AcquireFailed, "error"
}

// endEvent tells apart the ends of a hold. err is what went wrong, if anything did.
func endEvent(cause error) (event Event, reason locker.LostReason, err error) {
	lost, known := errors.AsType[*locker.LostError](cause)
	failed, unconfirmed := errors.AsType[*locker.Error](cause)
	switch {
	case known && lost.Reason == locker.LostMaxHold:
		return HeldTooLong, lost.Reason, cause
	case known:
		return Lost, lost.Reason, cause
	case errors.Is(cause, locker.ErrLost):
		return Lost, locker.LostStolen, cause // as the Client takes it
	case unconfirmed:
		return ReleaseFailed, "", failed
	}
	return Released, "", nil
}
