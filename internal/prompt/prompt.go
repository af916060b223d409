// Package prompt finds out whether the calls of a Locker or a store end by themselves, whatever the
// network does. A Client makes such a call on the goroutine of its caller. Any other call runs on a
// goroutine that the caller can leave, which takes longer.
package prompt

import "time"

// Overrun is how long after the deadline of its ctx a prompt call may go on. A go-redis client with
// default options reads for up to 5 seconds, and does not look at its ctx meanwhile.
const Overrun = 5 * time.Second

// Of tells whether l has a method Prompt that returns true: each of its calls then ends by Overrun
// after the deadline of its ctx, or sooner. It is false for what does not say so, such as
// middleware: that costs time, and nothing else.
func Of(l any) bool {
	says, ok := l.(interface{ Prompt() bool })
	return ok && says.Prompt()
}
