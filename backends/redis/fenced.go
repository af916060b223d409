package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// The counter of a lock lies beside it, in its slot of a Redis Cluster.
//
//	SetNXFenced  EVALSHA number.lua    SET key token PX ttl if key is free or holds token; the counter, if it was free
//	RaiseFence   EVALSHA raise.lua     SET counter to, if key holds token and the counter is not over it

// fenceKey is the key of a counter. It has a NUL, which no key of a lock has, so it is in no lock's way.
func fenceKey(key string) string { return sideKey(key, "\x00fence") }

// fenceLimit is where numbers end. The store then refuses to number a grant, with an error that says so; what has been
// granted stays.
const fenceLimit = 1 << 53

// SetNXFenced is SetNX, and numbers new ownerships. It is one script, also for a free lock. A counter that holds no number,
// or is at the end of all numbers, is an error: nothing is granted.
func (s *Store) SetNXFenced(ctx context.Context, key, token string, ttl time.Duration, n backends.Numbering) (backends.Result, error) {
	retention, err := s.numbering(n)
	if err != nil {
		return backends.Result{}, err
	}
	ms, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	full := s.config.prefix + key
	number := func(p *pinned) (backends.Result, error) {
		return numbered(numberScript.run(ctx, p.or(s.once), full, fenceKey(full), token, ms, retention))
	}
	if s.config.replicas == 0 {
		return number(nil)
	}
	return s.acknowledged(ctx, full, s.deleting(full, token), number)
}

// numbering gives the argument of number.lua that says how long a counter outlives its last use: empty for ever.
func (s *Store) numbering(n backends.Numbering) (any, error) {
	if err := s.scripts("numbered"); err != nil {
		return nil, err
	}
	switch n {
	case backends.Count:
		return "", nil
	case backends.Clock:
		return milliseconds(backends.FenceRetention), nil
	}
	return nil, refusal(fmt.Sprintf("no such numbering: %d", n))
}

// numbered reads the reply of number.lua.
func numbered(reply any, err error) (backends.Result, error) {
	r, told, err := granted(reply, err)
	if err != nil || !r.OK {
		return r, err
	}
	text, _ := told.(string)
	if r.Fence, err = strconv.ParseUint(text, 10, 64); err != nil || r.Fence == 0 || r.Fence >= fenceLimit {
		return backends.Result{}, unexpected(reply)
	}
	return r, nil
}

// RaiseFence sets the counter of key to to, if key holds token and the counter is not over it already.
func (s *Store) RaiseFence(ctx context.Context, key, token string, to uint64) (bool, error) {
	if err := s.scripts("numbered"); err != nil {
		return false, err
	}
	if to >= fenceLimit {
		return false, refusal(fmt.Sprintf("number %d is not under 2^53", to))
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	full := s.config.prefix + key
	raise := func(p *pinned) (r backends.Result, err error) {
		r.OK, err = yes(raiseScript.run(ctx, p.or(s.do), full, fenceKey(full), token, to))
		return r, err
	}
	if s.config.replicas == 0 {
		r, err := raise(nil)
		return r.OK, err
	}
	r, err := s.acknowledged(ctx, full, nil, raise)
	return r.OK, err
}

// scripts refuses what can't be done without them.
func (s *Store) scripts(kind string) error {
	if s.config.scriptless {
		return refusal(kind + " locks need scripts, and the store has the option WithoutScripts")
	}
	return nil
}
