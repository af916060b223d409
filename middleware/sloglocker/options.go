package sloglocker

import (
	"log/slog"
	"maps"
)

// Option changes what [New] returns.
type Option func(*log)

// WithLogger sets the logger. There is no other way to have one: slog.Default belongs to the program.
func WithLogger(logger *slog.Logger) Option { return func(l *log) { l.logger = logger } }

// WithKeyAttribute changes keys for the log, to hide what they contain or to put them into groups. Since the texts of errors
// contain the key as well, only the types of errors are logged then. The function must be safe for concurrent use.
func WithKeyAttribute(attribute func(key string) string) Option {
	return func(l *log) { l.keyAttribute = attribute }
}

// WithLevel sets the level of an event: [Acquired] at Info makes a journal of who held what, and where a wait that times out
// is nothing unusual, [WaitTimedOut] belongs at Debug.
func WithLevel(event Event, level slog.Level) Option {
	return func(l *log) { l.levels[event] = level }
}

func newLog(opts []Option) *log {
	l := &log{levels: maps.Clone(levels)}
	for _, opt := range opts {
		if opt != nil {
			opt(l)
		}
	}
	return l
}
