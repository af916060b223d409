package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/redis/go-redis/v9"
)

// This file is the part to copy: a lock with numbered grants, and a write that sends the number.

// A story has two documents, both protected by the same lock.
type story struct {
	locks          *locker.Client
	client         *redis.Client
	key            string // of the lock
	blind, guarded string // of the documents: hashes with a field text
}

// open does not connect yet: the first Lock does.
func open(addr string) *story {
	store, client := goredis.Open(&redis.Options{Addr: addr})
	name := "fencing/" + rand.Text()[:8] // a new name for each run: others may use the same server
	return &story{locker.New(fenced.New(store)), client, name, name + "/blind", name + "/guarded"}
}

// writeGuarded writes unless a later holder has written. The server compares and writes in one step.
func (s *story) writeGuarded(ctx context.Context, number uint64, text string) error {
	accepted, err := guard.Run(ctx, s.client, []string{s.guarded}, number, "text", text).Bool()
	switch {
	case err != nil:
		return err
	case !accepted:
		return fmt.Errorf("number %d: %w", number, fence.ErrLate)
	}
	return nil
}

var guard = redis.NewScript(fence.Script)

// writeBlindly writes without looking at the number.
func (s *story) writeBlindly(ctx context.Context, text string) error {
	return s.client.HSet(ctx, s.blind, "text", text).Err()
}

func (s *story) read(ctx context.Context) (blind, guarded string, err error) {
	if blind, err = s.client.HGet(ctx, s.blind, "text").Result(); err != nil {
		return "", "", err
	}
	guarded, err = s.client.HGet(ctx, s.guarded, "text").Result()
	return blind, guarded, err
}

// close removes the documents.
func (s *story) close(ctx context.Context) {
	_ = s.client.Del(context.WithoutCancel(ctx), s.blind, s.guarded).Err() // of a demo
	s.client.Close()
}
