// Package starting calls a store without waiting for its answer, so that one goroutine can call
// many servers at once, such as the nodes of a quorum.
package starting

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A Store can be called in this way.
//
// StartSetNX and StartDeleteIf do what SetNX and DeleteIf do, for a caller that has no position in
// a queue. They return at once. The function is called once, on another goroutine, with the result.
// It must not block: other calls may wait for that goroutine. After a call is sent, its deadline
// still applies, but a cancelled ctx may have no effect.
type Store interface {
	backends.Store
	StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(backends.Result, error))
	StartDeleteIf(ctx context.Context, key, value string, then func(ok bool, err error))

	// Self returns the store itself. In a wrapper that embeds a store, Self is the method of the
	// inner store and returns that one.
	Self() backends.Store
}

// Of returns store as a Store if the methods are its own. It refuses a wrapper that got them by
// embedding: the wrapper may have its own SetNX or DeleteIf, and those must be called.
func Of(store backends.Store) (s Store, ok bool) {
	if s, ok = store.(Store); !ok || s.Self() != store {
		return nil, false
	}
	return s, true
}

// Awaited returns a store whose SetNX and DeleteIf start the call and wait for it, so that the
// contract of a Store can check started calls.
func Awaited(s Store) backends.Store { return awaited{s} }

type awaited struct{ Store }

func (a awaited) SetNX(ctx context.Context, key, value string, ttl time.Duration) (r backends.Result, err error) {
	done := make(chan struct{})
	a.StartSetNX(ctx, key, value, ttl, func(result backends.Result, fault error) {
		r, err = result, fault
		close(done) // panics the second time
	})
	<-done
	return r, err
}

func (a awaited) DeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	done := make(chan struct{})
	a.StartDeleteIf(ctx, key, value, func(deleted bool, fault error) {
		ok, err = deleted, fault
		close(done)
	})
	<-done
	return ok, err
}
