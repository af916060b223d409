package redisstore

import (
	"context"
	"time"
)

// The plain commands of older recipes. A command is sent once if its answer would differ the second
// time.

// MaxTTL is the longest TTL that the store takes: see [WithMaxTTL].
func (s *Store) MaxTTL() time.Duration { return s.config.maxTTL }

// SetNXForever is SETNX.
func (s *Store) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	if err := s.mayGrant(ctx); err != nil {
		return false, err
	}
	return yes(s.plain(ctx, "SETNX", s.config.prefix+key, value))
}

// mayGrant is ready for a command that grants.
func (s *Store) mayGrant(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.guard.mayGrant(ctx)
}

// plain sends a command that grants, and shares no round trip.
func (s *Store) plain(ctx context.Context, args ...any) (any, error) {
	reply, err := s.exec.Once(ctx, args...)
	return s.guard.answer(ctx, s.exec.Once, args, reply, err)
}

// Get is GET.
func (s *Store) Get(ctx context.Context, key string) (string, bool, error) {
	if err := s.ready(ctx); err != nil {
		return "", false, err
	}
	return text(s.exec.Do(ctx, "GET", s.config.prefix+key))
}

// GetSet is GETSET.
func (s *Store) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	if err := s.mayGrant(ctx); err != nil {
		return "", false, err
	}
	return text(s.plain(ctx, "GETSET", s.config.prefix+key, value))
}

// Left is PTTL without the ms of lifeOfKey, and at least a millisecond if key has an expiry.
func (s *Store) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	if err := s.ready(ctx); err != nil {
		return 0, false, err
	}
	reply, err := s.exec.Do(ctx, "PTTL", s.config.prefix+key)
	if err != nil {
		return 0, false, err
	}
	left, ok := reply.(int64)
	switch {
	case !ok || left < -2:
		return 0, false, unexpected(reply)
	case left == -2:
		return 0, false, nil
	case left == -1:
		return 0, true, nil
	}
	return leftOf(left), true, nil
}

// Expire is PEXPIRE.
func (s *Store) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	return yes(s.exec.Do(ctx, "PEXPIRE", s.config.prefix+key, lifeOfKey(ttl)))
}

// Delete is DEL.
func (s *Store) Delete(ctx context.Context, key string) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return yes(s.exec.Once(ctx, "DEL", s.config.prefix+key))
}

// TxExpireIf is WATCH, GET, and if key holds value MULTI, PEXPIRE, EXEC.
func (s *Store) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	full := s.config.prefix + key
	err = s.line.on(ctx, full, func(p *pinned) (err error) {
		ok, err = s.ifHolds(ctx, p, full, value, []any{"PEXPIRE", full, lifeOfKey(ttl)})
		return err
	})
	return ok, err
}

// TxDeleteIf is WATCH, GET, and if key holds value MULTI, DEL, EXEC.
func (s *Store) TxDeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	full := s.config.prefix + key
	err = s.line.on(ctx, full, func(p *pinned) (err error) {
		ok, err = s.ifHolds(ctx, p, full, value, []any{"DEL", full})
		return err
	})
	return ok, err
}

// GetBit is GETBIT.
func (s *Store) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return yes(s.exec.Do(ctx, "GETBIT", s.config.prefix+key, offset))
}

// SetBit is SETBIT.
func (s *Store) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	bit, ready, send := 0, s.ready, s.exec.Once
	if on {
		bit, ready, send = 1, s.mayGrant, s.plain
	}
	if err := ready(ctx); err != nil {
		return false, err
	}
	return yes(send(ctx, "SETBIT", s.config.prefix+key, offset, bit))
}

// text reads a string, or nil for none.
func text(reply any, err error) (string, bool, error) {
	if err != nil || reply == nil {
		return "", false, err
	}
	value, ok := reply.(string)
	if !ok {
		return "", false, unexpected(reply)
	}
	return value, true, nil
}
