package locker

import (
	"context"
	"time"
)

// watchContext is the ctx of a watch. It ends when its line needs the watch no longer. A ctx of
// [context.WithCancel], with the call that a store asks for at its end, takes about 500 bytes more.
// That is a quarter of what a key costs that is waited for.
type watchContext struct {
	ctxEnd
	waiter string // the name under which the store wakes the line
}

func (c *watchContext) Deadline() (end time.Time, ends bool) { return time.Time{}, false }
func (c *watchContext) Value(any) any                        { return nil }

func (c *watchContext) cancel() { c.end(context.Canceled) }
