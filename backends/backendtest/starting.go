package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Started returns a store whose SetNX and DeleteIf are started, and waited for: the contract of these is that of the others.
func Started(store backends.StartingStore) backends.Store { return started{store} }

type started struct{ backends.StartingStore }

func (s started) SetNX(ctx context.Context, key, value string, ttl time.Duration) (r backends.Result, err error) {
	done := make(chan struct{})
	s.StartSetNX(ctx, key, value, ttl, func(result backends.Result, fault error) {
		r, err = result, fault
		close(done) // panics the second time
	})
	<-done
	return r, err
}

func (s started) DeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	done := make(chan struct{})
	s.StartDeleteIf(ctx, key, value, func(deleted bool, fault error) {
		ok, err = deleted, fault
		close(done)
	})
	<-done
	return ok, err
}
