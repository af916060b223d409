// Package bounded ends calls for people that have no deadline: those that look at a store, check it,
// or end a hold by hand. No lease ends them, as it ends an attempt.
package bounded

import (
	"context"
	"fmt"
	"time"
)

// Limit is longer than what these calls take over a server that is far away or busy.
const Limit = 10 * time.Second

// Context returns ctx with a limit, unless ctx has a deadline. The call must defer end with its error,
// which then says what happened.
func Context(ctx context.Context) (limited context.Context, end func(err *error)) {
	if ctx == nil {
		return nil, func(*error) {}
	}
	if _, ends := ctx.Deadline(); ends {
		return ctx, func(*error) {}
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, Limit)
	return limited, func(err *error) {
		// Some libraries give up a moment before the deadline.
		if *err != nil && ctx.Err() == nil && time.Since(began) > Limit*9/10 {
			*err = fmt.Errorf("%w; it is given up after %v, since its ctx has no deadline: to wait longer, give it one", *err, Limit)
		}
		cancel()
	}
}

// Call is for a call of a library that may not obey its ctx. It is left behind then, a moment after
// the end of ctx or of the limit.
func Call[T any](ctx context.Context, call func(context.Context) (T, error)) (result T, err error) {
	ctx, end := Context(ctx)
	defer end(&err)
	if ctx == nil || ctx.Err() != nil {
		return call(ctx) // which says so
	}
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		result, err := call(ctx)
		answers <- answer{result, err}
	}()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
	}
	moment := time.NewTimer(grace)
	defer moment.Stop()
	select {
	case a := <-answers: // a better error
		return a.result, a.err
	case <-moment.C:
		return result, fmt.Errorf("%w: the client library has not returned; the outcome is unknown", ctx.Err())
	}
}

const grace = 100 * time.Millisecond
