package locker

import (
	"context"
	"fmt"
	"time"
)

// holdContext looks at the clocks before it says that the hold goes on: after a pause, the process
// must not read an old answer before the scheduler had its turn. It is a part of the Lock, which is
// not garbage as long as it is used.
type holdContext struct{ hold *hold }

func (c *holdContext) Deadline() (time.Time, bool) { return c.hold.parent.Deadline() }
func (c *holdContext) Done() <-chan struct{}       { return c.hold.context().Done() }

// Value gives the hold itself to a Lock below it: see Client.waitsForItself.
func (c *holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	return c.hold.context().Value(key)
}

func (c *holdContext) Err() error {
	ctx, over := c.hold.state(time.Now())
	switch {
	case ctx != nil:
		return ctx.Err()
	case over != nil && !c.hold.stopped:
		return context.Canceled
	}
	return c.hold.parent.Err()
}

type holdKey struct{}

// holdOf is the innermost hold from whose context ctx descends, or nil.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// String, GoString and Format keep fmt from printing the hold inside.
func (c *holdContext) String() string {
	return fmt.Sprintf("%v.WithLock(%q)", c.hold.given, shown(c.hold.lease.Key))
}

func (c *holdContext) GoString() string { return c.String() }

func (c *holdContext) Format(s fmt.State, verb rune) { format(s, verb, c) }
