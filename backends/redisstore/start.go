package redisstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/pipeline"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/stack"
)

// Self is the store itself: see package internal/starting.
func (s *Store) Self() backends.Store { return s }

// StartSetNX is SetNX that does not wait: it is for the quorums of this module. A call that shares
// round trips takes no goroutine unless the key is not free.
func (s *Store) StartSetNX(ctx context.Context, key, token string, ttl time.Duration, then func(backends.Result, error)) {
	s.starter.setNX(ctx, key, token, ttl, then)
}

// StartDeleteIf is DeleteIf that does not wait: it is for the quorums of this module.
func (s *Store) StartDeleteIf(ctx context.Context, key, token string, then func(ok bool, err error)) {
	s.starter.deleteIf(ctx, key, token, then)
}

// starter makes calls that do not wait.
type starter interface {
	setNX(ctx context.Context, key, token string, ttl time.Duration, then func(backends.Result, error))
	deleteIf(ctx context.Context, key, token string, then func(ok bool, err error))
}

// waiting lets a goroutine wait for each call. In a cluster, even to find out which server is to
// have a command may take a while.
type waiting struct{ *Store }

func (s waiting) setNX(ctx context.Context, key, token string, ttl time.Duration, then func(backends.Result, error)) {
	stack.Go(func() (backends.Result, error) { return s.SetNX(ctx, key, token, ttl) }, pipeline.ErrStranded, then)
}

func (s waiting) deleteIf(ctx context.Context, key, token string, then func(ok bool, err error)) {
	stack.Go(func() (bool, error) { return s.DeleteIf(ctx, key, token) }, pipeline.ErrStranded, then)
}

// sharing starts calls that are one command and wait for no other.
type sharing struct {
	waiting
	shared *pipeline.Pipeline
}

func (s sharing) setNX(ctx context.Context, key, token string, ttl time.Duration, then func(backends.Result, error)) {
	if s.granting(ctx, ttl) != nil {
		s.waiting.setNX(ctx, key, token, ttl, then)
		return
	}
	full, ms := s.config.prefix+key, lifeOfKey(ttl)
	s.shared.Start(ctx, func(reply any, err error) {
		s.guard.Answered(err)
		if isDropped(err) {
			s.waiting.setNX(ctx, key, token, ttl, then)
			return
		}
		r, err := stored(reply, err)
		if r.OK || err != nil {
			then(s.counts(r, err))
			return
		}
		stack.Go(func() (backends.Result, error) {
			return s.ops.inspect(ctx, s.line, full, token, ms)
		}, pipeline.ErrStranded, then)
	}, setNXPX(full, token, ms)...)
}

func (s sharing) deleteIf(ctx context.Context, key, token string, then func(ok bool, err error)) {
	if s.ready(ctx) != nil {
		s.waiting.deleteIf(ctx, key, token, then)
		return
	}
	full := s.config.prefix + key
	script, args := s.lettingGo(full, token)
	s.shared.Start(ctx, func(reply any, err error) {
		s.guard.Answered(err)
		if unknown(err) || driver.IsMoving(err) || isKeptOut(err) || isDropped(err) { // nothing was done
			stack.Go(func() (bool, error) { return s.ops.release(ctx, s.line, full, token) }, pipeline.ErrStranded, then)
			return
		}
		then(s.passed(full, reply, err))
	}, script.Call(args)...)
}

// lettingGo is the script of a release, and its keys and arguments.
func (s *Store) lettingGo(key, token string) (scripts.Script, []any) {
	if s.queues() {
		args := s.passing(key, token)
		return scripts.Pass, args[:]
	}
	return scripts.Release, s.releasing(key, token)
}
