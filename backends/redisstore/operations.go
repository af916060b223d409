package redisstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// operations are what the options choose between: see New. Keys have their prefix, and ms is a TTL.
type operations interface {
	grant(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error)
	inspect(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error) // the second half of grant
	extend(ctx context.Context, l link, key, token string, ms int64) (bool, error)
	release(ctx context.Context, l link, key, token string) (bool, error)

	number(ctx context.Context, l link, key, token string, ms int64, how any) (backends.Result, error)
	raise(ctx context.Context, l link, key, token string, to uint64) (bool, error)

	enter(ctx context.Context, l link, key, token string, ms int64, a admission) (backends.Result, error)
	renew(ctx context.Context, l link, key, token string, ms int64) (bool, error)

	transfer(ctx context.Context, l link, t transfer) (backends.Result, error)
}

// choose returns the operations for the options of s.
func choose(s *Store) operations {
	var ops operations = scripted{s}
	if s.config.scriptless {
		ops = transactional{scripted{s}}
	}
	if s.config.replicas > 0 {
		ops = replicated{ops, s}
	}
	return ops
}

// setOrInspect is SetNX. A free lock costs a native command, which the server runs in less time than a
// script. Only if the key is not free does inspect look why. What it finds counts: the key may have
// become free, or been ours all the time.
//
// The form that does not wait is in start.go: it has the same command, decoder and inspect. This form
// does not stand on top of it, since that would add 4 allocations to the 22 of a pair over go-redis.
func setOrInspect(
	ctx context.Context, l link, key, token string, ms int64,
	inspect func(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error),
) (backends.Result, error) {
	r, err := setIfFree(ctx, l, key, token, ms)
	if r.OK || err != nil {
		return r, err
	}
	return inspect(ctx, l, key, token, ms)
}

// setIfFree does not tell why a key is not free.
func setIfFree(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error) {
	return stored(l.once(ctx, setNXPX(key, token, ms)...))
}

// setNXPX is the command that takes a free lock. It is sent once. A client library that sends it again
// hides that the first one may still be on its way: it would store the token when the lock has long
// been released.
func setNXPX(key, token string, ms int64) []any { return []any{"SET", key, token, "NX", "PX", ms} }

// stored reads the reply of setNXPX.
func stored(reply any, err error) (backends.Result, error) {
	switch {
	case err != nil:
		return backends.Result{}, err
	case reply == "OK":
		return backends.Result{OK: true}, nil
	case reply != nil: // meant for another command
		return backends.Result{}, unexpected(reply)
	}
	return backends.Result{}, nil
}

// scripted sends scripts.
type scripted struct{ *Store }

func (s scripted) grant(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error) {
	return setOrInspect(ctx, l, key, token, ms, s.inspect)
}

func (s scripted) inspect(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error) {
	return acquired(once(ctx, l, scripts.Acquire, key, token, ms))
}

func (s scripted) extend(ctx context.Context, l link, key, token string, ms int64) (bool, error) {
	return yes(do(ctx, l, scripts.Extend, key, token, ms))
}

func (s scripted) release(ctx context.Context, l link, key, token string) (bool, error) {
	if !s.queues() {
		return yes(once(ctx, l, scripts.Release, s.releasing(key, token)...))
	}
	return s.pass(ctx, l, key, token)
}

func (s scripted) number(ctx context.Context, l link, key, token string, ms int64, how any) (backends.Result, error) {
	return withNumber(granted(once(ctx, l, scripts.Number, key, fenceKey(key), token, ms, how)))
}

func (s scripted) raise(ctx context.Context, l link, key, token string, to uint64) (bool, error) {
	return yes(do(ctx, l, scripts.Raise, key, fenceKey(key), token, to))
}

func (s scripted) enter(ctx context.Context, l link, key, token string, ms int64, a admission) (backends.Result, error) {
	script, keys := scripts.EnterAlone, []any{key}
	switch {
	case a.Numbered:
		script, keys = scripts.EnterNumbered, []any{key, queueKey(key), reservedKey(key), fenceKey(key)}
	case a.queueing:
		script, keys = scripts.Enter, []any{key, queueKey(key), reservedKey(key)}
	}
	return entered(a.Admission)(once(ctx, l, script, append(keys,
		holdName(token), ms, a.Group, a.Limit, a.member, a.inOrder, reservation, s.counted(), queueLifeMs, a.slots, keep(a.Turn, time.Duration(ms)*time.Millisecond), a.lost, byClock)...))
}

func (s scripted) renew(ctx context.Context, l link, key, token string, ms int64) (bool, error) {
	return yes(do(ctx, l, scripts.Renew, key, holdName(token), ms))
}

func (s scripted) transfer(ctx context.Context, l link, t transfer) (backends.Result, error) {
	script, args := t.call()
	reply, err := once(ctx, l, script, args...)
	switch {
	case t.hold:
		r, err := entered(backends.Admission{Numbered: t.numbered})(reply, err)
		r.Room = 0
		return r, err
	case t.numbered:
		return withNumber(granted(reply, err))
	}
	return acquired(reply, err)
}

// scripts returns an error if the store has none: they alone carry locks of this kind.
func (s *Store) scripts(kind string) error {
	if s.config.scriptless {
		return backends.Invalid(kind + " locks need scripts, and the store has the option WithoutScripts")
	}
	return nil
}
