package redisstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/pipeline"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/stack"
)

// Self is the store itself: see package internal/starting.
func (s *Store) Self() backends.Store { return s }

// StartSetNX is SetNX that does not wait: it is for the quorums of this module. What shares round
// trips takes no goroutine unless the key is not free.
func (s *Store) StartSetNX(ctx context.Context, key, token string, ttl time.Duration, then func(backends.Result, error)) {
	ms, err := s.granting(ctx, ttl)
	if err != nil || !s.starts() {
		stack.Go(func() (backends.Result, error) { return s.SetNX(ctx, key, token, ttl) }, pipeline.ErrStranded, then)
		return
	}
	full := s.config.prefix + key
	s.shared.Start(ctx, func(reply any, err error) {
		s.guard.Answered(err)
		if isDropped(err) {
			stack.Go(func() (backends.Result, error) { return s.SetNX(ctx, key, token, ttl) }, pipeline.ErrStranded, then)
			return
		}
		r, err := stored(reply, err)
		if r.OK || err != nil {
			then(s.counts(r, err))
			return
		}
		stack.Go(func() (backends.Result, error) {
			return acquired(run(ctx, s.once, scripts.Acquire, full, token, ms))
		}, pipeline.ErrStranded, then)
	}, "SET", full, token, "NX", "PX", ms)
}

// StartDeleteIf is DeleteIf that does not wait: it is for the quorums of this module.
func (s *Store) StartDeleteIf(ctx context.Context, key, token string, then func(ok bool, err error)) {
	if s.ready(ctx) != nil || !s.starts() {
		stack.Go(func() (bool, error) { return s.DeleteIf(ctx, key, token) }, pipeline.ErrStranded, then)
		return
	}
	full := s.config.prefix + key
	script, args := s.lettingGo(full, token)
	s.shared.Start(ctx, func(reply any, err error) {
		s.guard.Answered(err)
		if unknown(err) || isMoving(err) || isKeptOut(err) || isDropped(err) { // nothing was done
			stack.Go(func() (bool, error) { return s.deleteIf(ctx, nil, full, token) }, pipeline.ErrStranded, then)
			return
		}
		then(yes(reply, err))
	}, script.Call(args)...)
}

// lettingGo is the script of a release, and what it is told.
func (s *Store) lettingGo(key, token string) (scripts.Script, []any) {
	if s.queues() {
		return scripts.Pass, s.passing(key, token)
	}
	return scripts.Release, s.releasing(key, token)
}

// starts tells whether calls are one command, which waits for nobody else's. In a cluster even finding out which server is to have it
// may take a while.
func (s *Store) starts() bool {
	return s.shared != nil && !s.clustered() && s.config.replicas == 0 && !s.config.scriptless
}
