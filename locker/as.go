package locker

import (
	"context"
	"reflect"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// As makes a Client what another library calls a locker: a value with a method Lock that returns a
// T. T is an interface of that library whose methods [*Lock] has, so neither library imports the
// other:
//
//	gocron.WithDistributedLocker(locker.As[gocron.Lock](locks, locker.WithAttempts(1), locker.WithMinHold(20*time.Second)))
//
// The options are for each call of Lock. A library that skips work when Lock returns an error needs
// WithAttempts(1): Lock would otherwise wait for the lock, and then do the work a second time.
//
// A library that knows only Unlock does not tell the work that the lock was lost. Work that must
// know takes its lock by [Client.Do].
//
// If *Lock has not the methods of T, the error of Lock is permanent, and nothing is sent. With an
// error, its result is the zero T: nil, for an interface.
func As[T any](c *Client, opts ...Option) interface {
	Lock(ctx context.Context, key string) (T, error)
} {
	return adapted[T]{c, opts}
}

type adapted[T any] struct {
	client *Client
	opts   []Option
}

func (a adapted[T]) Lock(ctx context.Context, key string) (T, error) {
	var none T
	if _, fits := any((*Lock)(nil)).(T); !fits {
		return none, &Error{Op: "lock", Key: key, Err: outcome.Invalidf("*locker.Lock is no %v", reflect.TypeFor[T]())}
	}
	l, err := a.client.Lock(ctx, key, a.opts...)
	if err != nil {
		return none, err
	}
	return any(l).(T), nil
}
