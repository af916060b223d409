package goredis

import (
	"context"

	"github.com/lockstep-go/lockstep/backends/redis"
)

// ring is the executor of a client that can't keep locks. It says so instead of sending anything.
type ring struct{}

type ringError struct{}

func (ringError) Error() string {
	return "a redis.Ring can't keep locks: when a shard is down it leads the key to another, which grants it again"
}

// Refused says that repeating will not help.
func (ringError) Refused() bool { return true }

// ErrorType is "invalid".
func (ringError) ErrorType() string { return "invalid" }

func (ring) Do(context.Context, ...any) (any, error)                      { return nil, ringError{} }
func (ring) Once(context.Context, ...any) (any, error)                    { return nil, ringError{} }
func (ring) Pinned(context.Context, string, func(redis.Conn) error) error { return ringError{} }
func (ring) Subscribe(context.Context) redis.Subscription                 { return silent{} }

// silent refuses its first request, after which nothing more is asked of it.
type silent struct{ redis.Subscription }

func (silent) Subscribe(string) error { return ringError{} }
func (silent) Close() error           { return nil }
