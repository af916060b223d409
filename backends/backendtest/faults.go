package backendtest

import (
	"context"
	"errors"
	"time"
)

// A Fault decides what becomes of one call. execute passes the call on to the store; a fault may call it once, or not
// at all. When the fault returns nil the caller gets the store's answer, otherwise that error and nothing else.
//
// Faults are given only calls whose ctx is not yet done: the others return its error, as every store does. They wait in
// ways that let the time of a testing/synctest bubble go on.
type Fault func(ctx context.Context, execute func(context.Context) error) error

// ErrInjected is matched by the errors that faults make up. Those of a ctx are returned as they are.
var ErrInjected = errors.New("injected fault")

// Fail loses the request: the store does not execute it, and the caller gets an error that leaves that open.
func Fail(context.Context, func(context.Context) error) error { return ErrInjected }

// Refuse answers like a store that denies permission: the error has a method Permanent that returns true.
func Refuse(context.Context, func(context.Context) error) error { return refusal{ErrInjected} }

type refusal struct{ error }

func (refusal) Permanent() bool { return true }
func (r refusal) Unwrap() error { return r.error }

// Hang loses the request and answers when ctx is done, with its error.
func Hang(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// LoseReply lets the store execute the call, and returns an error whatever the answer was.
func LoseReply(ctx context.Context, execute func(context.Context) error) error {
	_ = execute(ctx)
	return ErrInjected
}

// LoseReplyHang lets the store execute the call, and answers when ctx is done, with its error.
func LoseReplyHang(ctx context.Context, execute func(context.Context) error) error {
	_ = execute(ctx)
	<-ctx.Done()
	return ctx.Err()
}

// Late waits for d, then executes the call and answers normally. It does not heed ctx, like a client library that
// only knows timeouts of its own; a Watch whose ctx has ended meanwhile is not begun, however.
func Late(d time.Duration) Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		time.Sleep(d)
		return execute(context.WithoutCancel(ctx))
	}
}

// Stall waits until release is closed, then goes on as the fault next says, or without a fault if next is nil. It does
// not heed ctx, and next gets one that does not end, so that after it [Hang] is for ever.
func Stall(release <-chan struct{}, next Fault) Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		<-release
		ctx = context.WithoutCancel(ctx)
		if next == nil {
			return execute(ctx)
		}
		return next(ctx, execute)
	}
}

// Ghost loses the connection at once, but the request is on its way, and the store executes it after d. A goroutine
// waits for that: a testing/synctest bubble must last longer.
func Ghost(d time.Duration) Fault {
	late := Late(d)
	return func(ctx context.Context, execute func(context.Context) error) error {
		go func() { _ = late(ctx, execute) }()
		return ErrInjected
	}
}
