package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// The counter of a lock lies beside it, in its slot of a Redis Cluster.
//
//	SetNXNumbered  EVALSHA number.lua    SET key token PX ttl if key is free or holds token; the counter, if it was free
//	               EVALSHA enqueue.lua   the same for a waiter in the queue; SetNXQueued uses this script too
//	SetNXFenced    EVALSHA number.lua
//	RaiseFence     EVALSHA raise.lua     SET counter to, if key holds token and the counter is not over it

// fenceKey is the key of a counter. It has a NUL, which no key of a lock has, so it is in no lock's
// way.
func fenceKey(key string) string { return sideKey(key, "\x00fence") }

// fenceLimit is where numbers end. The store then refuses to number a grant, with an error that
// says so; what has been granted stays.
const fenceLimit = 1 << 53

// The argument of draw.lua that says how to number.
var byCount, byClock any = "", milliseconds(backends.FenceRetention)

// SetNXNumbered is SetNXQueued, and numbers new ownerships by the time of the server in µs, or by
// the last number and one more if that is greater. It is one script, also for a free lock. A
// counter that holds no number, or is at the end of all numbers, is an error: nothing is granted.
func (s *Store) SetNXNumbered(ctx context.Context, key, token string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	a := attempt{key: s.config.prefix + key, token: token, ttl: ttl, turn: t, numbered: true}
	if t.Waiter == "" && !t.InOrder {
		return s.setAlone(ctx, &a)
	}
	if err := s.scripts("numbered"); err != nil {
		return backends.Result{}, err
	}
	return s.setInTurn(ctx, &a)
}

// SetNXFenced is SetNX, and counts new ownerships.
func (s *Store) SetNXFenced(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
	return s.numberAlone(ctx, s.config.prefix+key, token, ttl, byCount)
}

// numberAlone grants a numbered lock without its queue. The key has the prefix.
func (s *Store) numberAlone(ctx context.Context, key, token string, ttl time.Duration, how any) (backends.Result, error) {
	if err := s.scripts("numbered"); err != nil {
		return backends.Result{}, err
	}
	if err := s.granting(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	return s.ops.number(ctx, s.line, key, token, lifeOfKey(ttl), how)
}

// withNumber reads the number of a grant.
func withNumber(r backends.Result, number any, err error) (backends.Result, error) {
	if err != nil || !r.OK {
		return r, err
	}
	text, _ := number.(string)
	if r.Fence, err = strconv.ParseUint(text, 10, 64); err != nil || r.Fence == 0 || r.Fence >= fenceLimit {
		return backends.Result{}, unexpected(number)
	}
	return r, nil
}

// RaiseFence sets the counter of key to to, if key holds token and the counter is not over it
// already.
func (s *Store) RaiseFence(ctx context.Context, key, token string, to uint64) (bool, error) {
	if err := s.scripts("numbered"); err != nil {
		return false, err
	}
	if to >= fenceLimit {
		return false, backends.Invalidf("number %d is not under 2^53", to)
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.ops.raise(ctx, s.line, s.config.prefix+key, token, to)
}
