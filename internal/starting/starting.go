// Package starting asks a store without waiting for its answer, so that one goroutine asks many
// servers at once, such as the nodes of a quorum, and none waits for each of them.
package starting

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A Store can be asked in this way.
//
// StartSetNX and StartDeleteIf are SetNX and DeleteIf, for a caller who does not stand in a queue.
// They give what those return to then: once, on another goroutine, and in the time that those would
// take. Then does not block, since others may wait for that goroutine. Once the call is sent, a ctx
// that is cancelled need not end it; its deadline does.
type Store interface {
	backends.Store
	StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(backends.Result, error))
	StartDeleteIf(ctx context.Context, key, value string, then func(ok bool, err error))

	// Self is the store that has these methods.
	Self() backends.Store
}

// Of is store, if it can be asked in this way. A store that got the methods by embedding another
// one can't: it may have a SetNX or a DeleteIf of its own, which must not be passed by.
func Of(store backends.Store) (s Store, ok bool) {
	if s, ok = store.(Store); !ok || s.Self() != store {
		return nil, false
	}
	return s, true
}

// Awaited returns a store whose SetNX and DeleteIf are started, and waited for: the contract of
// these is that of the others.
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
