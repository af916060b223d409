package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Await returns the result of get, or the error of ctx when ctx is done: get may know nothing of ctx. Then late
// is called with the result, unless get returns an error, and left counts the call until get returns. While too
// many calls are left, Await returns [ErrLeft], and does not call get.
func Await[T any](ctx context.Context, left *atomic.Int32, get func() (T, error), late func(T)) (T, error) {
	if ctx.Done() == nil {
		return get()
	}
	var none T
	if left.Load() >= maxLeft {
		return none, ErrLeft
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result)
	go func() {
		value, err := get()
		select {
		case results <- result{value, err}:
		case <-ctx.Done():
			left.Add(-1)
			if err == nil {
				late(value)
			}
		}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		left.Add(1) // results has no buffer: the goroutine takes it back
		return none, ctx.Err()
	}
}

// Without a limit, a server that hangs would use up all files there are, and with them the way to others.
const maxLeft = 256

// ErrLeft is the error of a call that was not begun.
var ErrLeft = errors.New(fmt.Sprint(maxLeft, " calls whose ctx has ended still wait for a connection"))
