package locker

import (
	"context"
	"time"
)

// watchContext is the ctx of a watch: it ends when the line has no use for the watch. That of [context.WithCancel], with what a
// store asks to be called at its end below it, takes half a kilobyte more, and there may be ten thousand.
type watchContext struct {
	ending
	calls *atEnd
}

// atEnd is a call that is due when the ctx ends.
type atEnd struct {
	f    func()
	next *atEnd
}

func (c *watchContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end(context.Canceled) {
		return
	}
	for due := c.calls; due != nil; due = due.next {
		go due.f()
	}
	c.calls = nil
}

// AfterFunc calls f in a goroutine of its own once the ctx has ended, as [context.AfterFunc] does, which finds this method.
func (c *watchContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	due := &atEnd{f, c.calls}
	c.calls = due
	return func() bool { return c.forget(due) }
}

func (c *watchContext) forget(due *atEnd) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := &c.calls; *at != nil; at = &(*at).next {
		if *at == due {
			*at = due.next
			return true
		}
	}
	return false
}

// Deadline and Value are those of [context.Context].
func (c *watchContext) Deadline() (end time.Time, ends bool) { return time.Time{}, false }
func (c *watchContext) Value(any) any                        { return nil }
