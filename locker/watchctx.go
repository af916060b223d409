package locker

import (
	"context"
	"sync"
	"time"
)

// watchContext is the ctx of a watch. It ends when its line needs the watch no longer. A ctx of
// [context.WithCancel], with the call that a store asks for at its end ([context.AfterFunc]), takes
// about 500 bytes more. That is a quarter of what a key costs that is waited for: see
// docs/performance.md, "What each mechanism brings".
type watchContext struct {
	mu    sync.Mutex
	done  chan struct{} // made when it is asked for
	ended bool
	calls []*func() // due at the end; nil: stopped
}

func (c *watchContext) Deadline() (end time.Time, ends bool) { return time.Time{}, false }
func (c *watchContext) Value(any) any                        { return nil }

func (c *watchContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	return c.done
}

func (c *watchContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return context.Canceled
	}
	return nil
}

// AfterFunc calls f in a goroutine of its own once c has ended. [context.AfterFunc] calls this method.
func (c *watchContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		go f()
		return func() bool { return false }
	}
	call := &f
	c.calls = append(c.calls, call)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, other := range c.calls {
			if other == call {
				c.calls[i] = nil
				return true
			}
		}
		return false
	}
}

func (c *watchContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if c.done != nil {
		close(c.done)
	}
	for _, call := range c.calls {
		if call != nil {
			go (*call)()
		}
	}
	c.calls = nil
}
