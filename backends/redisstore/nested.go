package redisstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// A nested lock is a hash: its owner, and for each hold when it ends, by the server's clock.
//
//	Enter   EVALSHA enter.lua   HSET hold:token, PEXPIREAT key when its last hold ends, if it is free or the owner's
//	Renew   EVALSHA renew.lua   the same, if hold:token has not ended
//	Leave   EVALSHA leave.lua   HDEL hold:token; DEL and PUBLISH with the last one

// Enter adds the hold token to key for ttl if key is free or its owner is owner.
func (s *Store) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	if err := s.scripts("nested"); err != nil {
		return backends.Result{}, err
	}
	ms, err := s.granting(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	return s.ops.enter(ctx, s.line, s.config.prefix+key, owner, token, ms)
}

// entered reads the reply of enter.lua.
func entered(reply any, err error) (backends.Result, error) {
	r, told, err := granted(reply, err)
	if err != nil || !r.OK {
		return r, err
	}
	holds, _ := told.(int64)
	if holds < 1 {
		return backends.Result{}, unexpected(reply)
	}
	r.Holds = int(holds)
	return r, nil
}

// Renew makes the hold token live for ttl from now, and never shorter than it would have lived.
func (s *Store) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if err := s.scripts("nested"); err != nil {
		return false, err
	}
	ms, err := s.check(ctx, ttl)
	if err != nil {
		return false, err
	}
	return s.ops.renew(ctx, s.line, s.config.prefix+key, token, ms)
}

// Leave ends the hold token. The last one frees key and wakes its waiters. It is sent once.
func (s *Store) Leave(ctx context.Context, key, token string) (bool, error) {
	if err := s.scripts("nested"); err != nil {
		return false, err
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.leave(ctx, s.line, s.config.prefix+key, token)
}

func (s *Store) leave(ctx context.Context, l link, key, token string) (bool, error) {
	return yes(once(ctx, l, scripts.Leave, key, token, s.channel(key)))
}
