// Package cleanup removes what an operation with an unknown outcome may have left in a store.
package cleanup

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	tryLimit   = time.Second          // for one call: a connection that is stuck must not use up the whole time
	firstPause = 5 * time.Millisecond // of Repeat, between calls that failed, doubling
	maxPause   = time.Second          // up to this
)

// Repeat calls fn until it returns nil or a refusal, or ctx is done; it returns the last error of fn. Every call has a
// limit of its own.
func Repeat(ctx context.Context, fn func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := try(ctx, fn); err == nil || Permanent(err) || !sleep(ctx, pause) {
			return err
		}
	}
}

func try(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return fn(ctx)
}

// Permanent tells whether err says by a method Permanent() bool that the store did not do what it
// was asked to and will not do it the next time either: a missing permission, bad input.
func Permanent(err error) bool {
	if err == nil { // as nearly always: errors.As would allocate
		return false
	}
	var r interface{ Permanent() bool }
	return errors.As(err, &r) && r.Permanent()
}

// Unsent tells whether err says, by a method Unsent() bool, that nothing was sent, or that there was no connection to send
// it on. Only the error of a call that was not repeated says so of the call as a whole.
func Unsent(err error) bool {
	if err == nil {
		return false
	}
	var u interface{ Unsent() bool }
	if errors.As(err, &u) { // it knows of all that it wraps
		return u.Unsent()
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// sleep returns false as soon as ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
