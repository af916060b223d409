package sloglocker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lockstep-go/lockstep/locker"
)

// An Event is the message of a record.
type Event string

// The events with their default levels; see [WithLevel].
const (
	Acquired      Event = "lock acquired"       // Debug
	Busy          Event = "lock busy"           // Debug: another holder has it, and the call does not wait, or stopped waiting
	WaitCanceled  Event = "lock wait canceled"  // Debug: its ctx was canceled, so the caller knows, and may just be shutting down
	WaitTimedOut  Event = "lock wait timed out" // Warn: the limit of the wait is over, or the deadline of its ctx
	AcquireFailed Event = "lock acquire failed" // Error: any other error

	Extended     Event = "lock extended"         // Debug
	ExtendFailed Event = "lock extension failed" // Warn: the lease has not ended, and another extension follows

	// Warn: its Lock became garbage without Unlock, and the lease is still renewed; logged once
	Abandoned Event = "lock abandoned"

	// Debug: Unlock keeps the key locked for the rest of its minimum hold; see locker.WithMinHold
	Kept Event = "lock kept"

	Released        Event = "lock released"                      // Debug
	ReleaseRepeated Event = "lock release not confirmed"         // Warn: the lease has not ended, and the release is repeated
	ReleaseFailed   Event = "lock release failed"                // Error: the lock may stay held until its lease ends
	Lost            Event = "lock lost"                          // Error: its lease ended before Unlock, or Unlock found that it had
	HeldTooLong     Event = "lock lost: held as long as allowed" // Warn: see locker.WithMaxHold

	TermBegan Event = "term began" // Info: this process leads an election; see Terms
	TermEnded Event = "term ended" // Info: it leads no more
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
	Kept:         slog.LevelDebug,

	Released:        slog.LevelDebug,
	ReleaseRepeated: slog.LevelWarn,
	ReleaseFailed:   slog.LevelError,
	Lost:            slog.LevelError,
	HeldTooLong:     slog.LevelWarn,

	TermBegan: slog.LevelInfo,
	TermEnded: slog.LevelInfo,
}

// acquireEvent returns the event of an Acquire under ctx.
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

// endEvent returns the event of the end of a hold. err is the error, if there is one.
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
