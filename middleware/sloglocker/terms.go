package sloglocker

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockstep-go/lockstep/locker/election"
)

// Terms returns a hook for [election.Election.OnTerm] that logs the begin and the end of each term:
// [TermBegan] and [TermEnded].
//
//	e := election.New(locks, "billing/leader").OnTerm(sloglocker.Terms(sloglocker.WithLogger(logger)))
//
// Without a logger it returns nil, and nothing is logged.
func Terms(opts ...Option) func(context.Context, election.Term) func(election.End) {
	l := newLog(opts)
	if l.logger == nil {
		return nil
	}
	return func(ctx context.Context, t election.Term) func(election.End) {
		began := time.Now()
		if l.enabled(ctx, TermBegan) {
			l.write(ctx, TermBegan, l.term(t))
		}
		return func(end election.End) {
			if !l.enabled(ctx, TermEnded) {
				return
			}
			held := max(end.At.Sub(began), 0) // a process that was suspended may begin after its lease has ended
			attrs := append(l.term(t), slog.Duration("held", held), slog.String("reason", end.Reason))
			l.write(ctx, TermEnded, l.with(attrs, end.Err))
		}
	}
}

// term returns the attributes of a term.
func (l *log) term(t election.Term) []slog.Attr {
	key := t.Key
	if l.keyAttribute != nil {
		key = l.keyAttribute(key)
	}
	attrs := append(make([]slog.Attr, 0, 6), slog.String("key", key))
	if t.Number > 0 {
		attrs = append(attrs, slog.Uint64("fence", t.Number))
	}
	return attrs
}
