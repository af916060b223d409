package sloglocker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// log makes the records.
type log struct {
	logger       *slog.Logger
	keyAttribute func(string) string // nil: keys as they are
	levels       map[Event]slog.Level
}

// enabled is checked before the attributes are built.
func (l *log) enabled(ctx context.Context, event Event) bool {
	return l.logger.Enabled(ctx, l.levels[event])
}

func (l *log) write(ctx context.Context, event Event, attrs []slog.Attr) {
	l.logger.LogAttrs(ctx, l.levels[event], string(event), attrs...)
}

func (l *log) acquired(ctx context.Context, req contract.Request, resumed bool, lease contract.Lease, err error, began time.Time) {
	event, outcome := acquireEvent(ctx, err)
	if !l.enabled(ctx, event) {
		return
	}
	lease.Key, lease.Owner = req.Key, req.Owner // a failed Acquire has no lease
	holder := ""
	call := contract.CallOf(ctx)
	attempts, left, quorum := call.Attempts(), time.Duration(0), lease.Quorum
	if err != nil {
		attempts, left, quorum = facts(err)
		if held, ok := errors.AsType[*locker.HeldError](err); ok {
			lease.Holds, holder = held.Holds, held.Holder
		}
	}
	attrs := append(l.about(lease),
		slog.String("outcome", outcome), slog.Duration("ttl", req.TTL), slog.Duration("waited", time.Since(began)))
	if resumed {
		attrs = append(attrs, slog.Bool("resumed", true))
	}
	if attempts > 0 { // only some Lockers count them
		attrs = append(attrs, slog.Int("attempts", attempts))
	}
	// A Resume competes with nobody. One that is busy may have found the lock free.
	if contended := !resumed && isContended(call, err); contended || attempts > 0 {
		attrs = append(attrs, slog.Bool("contended", contended))
	}
	if lease.Holds > 0 && lease.Room >= 0 && err == nil {
		attrs = append(attrs, slog.Int("room", lease.Room))
	}
	if holder != "" {
		attrs = append(attrs, slog.String("holder", holder))
	}
	if left > 0 {
		attrs = append(attrs, slog.Duration("left", left))
	}
	if quorum.Size > 0 {
		attrs = append(attrs, slog.String("quorum", fmt.Sprintf("%d/%d", quorum.Granted, quorum.Size)))
	}
	l.write(ctx, event, l.with(attrs, err))
}

// isContended reports whether another holder had the lock, or another call was before this one in
// line.
func isContended(call contract.Call, err error) bool {
	own, ok := errors.AsType[*locker.Error](err)
	return call.Contended() || errors.Is(err, locker.ErrHeld) || ok && own.Contended
}

// facts returns the facts in the error of an Acquire other than the cause.
func facts(err error) (attempts int, left time.Duration, quorum contract.Quorum) {
	if held, ok := errors.AsType[*locker.HeldError](err); ok {
		attempts, left = held.Attempts, held.Left
	}
	if own, ok := errors.AsType[*locker.Error](err); ok && own.Attempts > 0 {
		attempts = own.Attempts
	}
	var counted interface{ Quorum() contract.Quorum }
	if errors.As(err, &counted) {
		quorum = counted.Quorum()
	}
	return attempts, left, quorum
}

// abandoned logs a lock that nobody can unlock any more but that is still renewed.
func (l *log) abandoned(ctx context.Context, lease contract.Lease) {
	if l.enabled(ctx, Abandoned) {
		l.write(ctx, Abandoned, l.about(lease))
	}
}

func (l *log) extended(ctx context.Context, lease contract.Lease, ttl time.Duration, err error) {
	event, kept := Extended, contract.CallOf(ctx).Kept()
	switch {
	case kept && err != nil: // in place of a release
		l.answered(ctx, lease, err)
		return
	case kept:
		event = Kept
	case err != nil:
		if unwanted(ctx) || over(lease, err) {
			return
		}
		event = ExtendFailed
	}
	if l.enabled(ctx, event) {
		l.write(ctx, event, l.with(append(l.about(lease), slog.Duration("ttl", ttl), left(lease)), err))
	}
}

// answered logs a release that failed.
func (l *log) answered(ctx context.Context, lease contract.Lease, err error) {
	if err != nil && !over(lease, err) && !permanent(err) && l.enabled(ctx, ReleaseRepeated) {
		l.write(ctx, ReleaseRepeated, l.with(append(l.about(lease), left(lease)), err))
	}
}

func (l *log) ended(ctx context.Context, lease contract.Lease, cause error, held time.Duration) {
	event, reason, err := endEvent(cause)
	if !l.enabled(ctx, event) {
		return
	}
	attrs := append(l.about(lease), slog.Duration("held", held))
	if reason != "" {
		attrs = append(attrs, slog.String("reason", string(reason)))
	}
	l.write(ctx, event, l.with(attrs, err))
}

// over reports whether a failure only means that the lease has ended: the end of the hold logs
// that. A lease without Expires does not count as ended: it is the cleanup of an attempt.
func over(lease contract.Lease, err error) bool {
	return errors.Is(err, locker.ErrLost) || lease.Ended()
}

// permanent reports a permanent error. Such a release is not repeated, and the end of the hold logs
// it.
func permanent(err error) bool {
	var r interface{ Permanent() bool }
	return errors.As(err, &r) && r.Permanent()
}

func left(lease contract.Lease) slog.Attr { return slog.Duration("left", time.Until(lease.Expires)) }

// about returns the first attributes of a record, with room for the rest.
func (l *log) about(lease contract.Lease) []slog.Attr {
	key := lease.Key
	if l.keyAttribute != nil {
		key = l.keyAttribute(key)
	}
	attrs := append(make([]slog.Attr, 0, 12), slog.String("key", key))
	if lease.Owner != "" {
		attrs = append(attrs, slog.String("owner", lease.Owner))
	}
	if lease.Fence > 0 {
		attrs = append(attrs, slog.Uint64("fence", lease.Fence))
	}
	if lease.Holds > 0 {
		attrs = append(attrs, slog.Int("holds", lease.Holds))
	}
	return attrs
}

// with adds the error. It leaves the text out if keys are changed for the log: the text contains
// the key.
func (l *log) with(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	if l.keyAttribute == nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	return append(attrs, slog.String("error_type", (&locker.Error{Err: err}).ErrorType()))
}
