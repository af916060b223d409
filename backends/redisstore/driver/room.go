package driver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// Room is how much of a pool is in use. An application may use all of it, for instance by commands
// that block. Renewals and releases must not wait for that: an adapter gives them connections
// beside the pool. A grant does wait.
type Room struct {
	InUse  int
	Most   int    // connections of the pool; 0: as many as are asked for
	Remedy string // how to let it have more
}

// None tells that a call would wait.
func (r Room) None() bool { return r.Most > 0 && r.InUse >= r.Most }

// Ample tells that a call need not think of waiting: half of the pool is not in use.
func (r Room) Ample() bool { return r.Most <= 0 || 2*r.InUse < r.Most }

// Exhausted is the error of a call that got no connection of the pool. The cause is that of the client
// library, or of the ctx.
func (r Room) Exhausted(cause error) error {
	return Kind("pool_exhausted", true, fmt.Errorf("%s (%w): give the locks a client of their own, or make the pool larger (%s)",
		printed.InUse(r.Most), cause, r.Remedy))
}

const (
	fullFor    = 100 * time.Millisecond // how long a holder's call waits for a pool that is used up
	answerTime = 100 * time.Millisecond // for an error to reach the caller of a call whose ctx ends
)

// Early returns a ctx for a call that may have to wait for a connection. It ends a little before
// ctx does, so that the caller hears that nothing was sent before the end of ctx makes it leave.
// Its Deadline method returns the deadline of ctx, since a command that was sent may be answered until then.
func Early(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	inner, cancel := context.WithDeadline(ctx, end.Add(-min(time.Until(end)/4, answerTime)))
	return early{inner, end}, cancel
}

type early struct {
	context.Context
	end time.Time
}

func (e early) Deadline() (time.Time, bool) { return e.end, true }

// WhenFull calls leave when a call has waited for a while and the pool is used up, unless stop is
// called first.
func WhenFull(room func() Room, leave func()) (stop func()) {
	var timer *time.Timer
	var over atomic.Bool
	timer = time.AfterFunc(never, func() {
		switch {
		case over.Load():
		case room().None():
			leave()
		default:
			timer.Reset(fullFor)
		}
	})
	timer.Reset(fullFor)
	return func() {
		over.Store(true)
		timer.Stop()
	}
}

const never = 1<<63 - 1

// Keeps tells whether a command of a Store is for a hold that there is, or may be: it renews, releases or
// cleans up.
func Keeps(args []any) bool {
	switch args[0] {
	case "EVALSHA", "EVAL":
		return scripts.Keeps(args)
	case "PEXPIRE", "DEL":
		return true
	}
	return false
}
