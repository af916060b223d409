package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// This file is the part to copy: a Client, made once, and two ways to hold a lock.

// openLocks does not connect yet: the first Lock does. One Client serves all goroutines and all keys.
func openLocks(addr string) (*locker.Client, io.Closer) {
	store, conn := goredis.Open(&redis.Options{Addr: addr})
	return locker.New(single.New(store)), conn
}

// addOneLocked adds one to the counter in file while no other process does.
func addOneLocked(ctx context.Context, locks *locker.Client, key, file string) (span, error) {
	var held span
	err := locks.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) (err error) {
		held, err = addOne(ctx, file) // this ctx ends if the lock is lost
		return err
	})
	return held, err
}

// holdUntilDone takes the lock and keeps it until ctx ends. The lease lasts for ttl, and the Client
// renews it for as long as this process lives.
func holdUntilDone(ctx context.Context, locks *locker.Client, key string, ttl time.Duration, held func()) error {
	l, err := locks.Lock(ctx, key, locker.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer l.Unlock(ctx) // releases even when ctx has ended
	held()

	<-l.Context().Done() // here would be the work
	if cause := context.Cause(l.Context()); errors.Is(cause, locker.ErrLost) {
		return cause
	}
	return nil
}
