package sloglocker

import (
	"log/slog"
	"maps"
)

// Option changes what [New] returns.
type Option func(*log)

// WithLogger sets the logger. Without it nothing is logged: slog.Default belongs to the program.
func WithLogger(logger *slog.Logger) Option { return func(l *log) { l.logger = logger } }

// WithKeyAttribute changes keys for the log, to hide what they contain or to group them. The texts
// of errors contain the key, so records then have only the type of an error. The function must be
// safe for concurrent use.
func WithKeyAttribute(attribute func(key string) string) Option {
	return func(l *log) { l.keyAttribute = attribute }
}

// WithLevel sets the level of an event. With [Acquired] at Info the log lists all holds. If waits
// that time out are usual, put [WaitTimedOut] at Debug.
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
