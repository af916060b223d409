package redisstore

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// What WithoutScripts sends in place of scripts, on a connection of its own:
//
//	acquire.lua   MULTI, GET, PTTL, EXEC      tells which token the key holds;
//	              as extend.lua               if it is ours; and what has no expiry gets one;
//	              SET NX PX                   if it has become free
//	extend.lua    WATCH, GET, PTTL, MULTI, PEXPIRE, EXEC
//	release.lua   WATCH, GET, MULTI, DEL, PUBLISH, EXEC

// transactional compares and acts in transactions. What needs scripts is refused before: see
// scripts.
type transactional struct{ scripted }

func (s transactional) grant(ctx context.Context, l link, key, token string, ms int64) (backends.Result, error) {
	return setOrInspect(ctx, l, key, token, ms, s.inspect)
}

func (s transactional) extend(ctx context.Context, l link, key, token string, ms int64) (bool, error) {
	return s.prolong(ctx, l, key, token, ms, false)
}

func (s transactional) inspect(ctx context.Context, l link, key, token string, ms int64) (r backends.Result, err error) {
	err = l.on(ctx, key, func(p *pinned) error {
		for range maxTurns {
			value, left, err := s.look(ctx, p, key)
			switch {
			case err != nil:
				return err
			case value == nil:
				r, err = setIfFree(ctx, p, key, token, ms)
			case value == token:
				r.OK, err = s.prolong(ctx, p, key, token, ms, true)
			default:
				held, _ := value.(string)
				r = refused(left, backends.InTheWay(backends.LabelOf(held)))
				return nil
			}
			if r.OK || err != nil {
				return err
			}
		}
		return errChanging
	})
	return r, err
}

// look reads the lock in one step.
func (s transactional) look(ctx context.Context, p *pinned, key string) (value any, left int64, err error) {
	for range maxTurns { // a connection may come to us with something watched on it by others
		replies, err := s.execute(ctx, p.read, [][]any{{"GET", key}, {"PTTL", key}})
		if err != nil {
			return nil, 0, err
		}
		if replies != nil {
			left, ok := replies[1].(int64)
			if !ok {
				return nil, 0, unexpected(replies)
			}
			return replies[0], left, nil
		}
	}
	return nil, 0, errChanging
}

// prolong makes key live for ms from now if it holds token, and never shorter than it would have. A
// value without expiry gets one only on demand.
func (s transactional) prolong(ctx context.Context, l link, key, token string, ms int64, expiry bool) (ok bool, err error) {
	err = l.on(ctx, key, func(p *pinned) error {
		replies, err := s.transact(ctx, p, key, func(seen []any) [][]any {
			left, _ := seen[1].(int64)
			switch {
			case seen[0] != token:
				return nil
			case left < 0 && !expiry || left >= ms: // it lives long enough, if both replies are about the same value: EXEC tells
				return [][]any{{"GET", key}}
			}
			return [][]any{{"PEXPIRE", key, ms}}
		}, []any{"GET", key}, []any{"PTTL", key})
		ok = happened(replies)
		return err
	})
	return ok, err
}

func (s transactional) release(ctx context.Context, l link, key, token string) (ok bool, err error) {
	err = l.on(ctx, key, func(p *pinned) (err error) {
		del := []any{"DEL", key}
		channel := s.channel(key)
		if channel == "" {
			ok, err = s.ifHolds(ctx, p, key, token, del)
			return err
		}
		ok, err = s.ifHolds(ctx, p, key, token, del, []any{"PUBLISH", channel, ""})
		if denied := (*driver.ReplyError)(nil); errors.As(err, &denied) && denied.Code() == "NOPERM" {
			// What is not permitted keeps all the rest from being done. As after the script, the
			// lock is free even if it is the PUBLISH, and the error says what is missing.
			if _, failed := s.ifHolds(ctx, p, key, token, del); failed != nil {
				return failed
			}
		}
		return err
	})
	return ok, err
}

// ifHolds executes commands if key holds token, and tells whether the first of them did something.
func (s *Store) ifHolds(ctx context.Context, p *pinned, key, token string, commands ...[]any) (bool, error) {
	replies, err := s.transact(ctx, p, key, func(seen []any) [][]any {
		if seen[0] != token {
			return nil
		}
		return commands
	}, []any{"GET", key})
	return happened(replies), err
}

// happened tells whether the first reply is more than nothing or zero.
func happened(replies []any) bool {
	return len(replies) > 0 && replies[0] != nil && replies[0] != int64(0)
}
