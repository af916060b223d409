package locker

import (
	"context"
	"fmt"
	"time"
)

// holdContext looks at the clocks before it says that the hold goes on: after a pause, the process must not read an
// old answer before the scheduler had its turn.
type holdContext struct {
	context.Context
	lock *Lock
}

func (c *holdContext) Done() <-chan struct{} {
	c.lock.checkClock(time.Now())
	return c.Context.Done()
}

func (c *holdContext) Err() error {
	c.lock.checkClock(time.Now())
	return c.Context.Err()
}

// String, GoString and Format keep fmt from printing the Lock inside.
func (c *holdContext) String() string {
	return fmt.Sprintf("%v.WithLock(%q)", c.lock.given, c.lock.Key())
}

func (c *holdContext) GoString() string { return c.String() }

func (c *holdContext) Format(s fmt.State, verb rune) { format(s, verb, c) }
