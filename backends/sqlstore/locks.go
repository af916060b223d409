package sqlstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// SetNX implements [backends.Store].
func (s *rows) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, unnumbered)
}

// SetNXNumbered implements [backends.NumberedStore]. There is no queue: an order is a permanent error.
func (s *rows) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.InOrder {
		return backends.Result{}, backends.Invalid("waiters that poll can't stand in order: use another store for fair")
	}
	return s.take(ctx, key, value, ttl, byClock)
}

// SetNXFenced implements [backends.FencedStore].
func (s *rows) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, byCount)
}

func (s *rows) take(ctx context.Context, key, value string, ttl time.Duration, numbering int) (res backends.Result, err error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, value)
	if err != nil {
		return backends.Result{}, err
	}
	err = s.change(ctx, grants, name, func(r *record) (until int64, err error) {
		res = backends.Result{}
		s.own.shown(r.server)
		ours, err := r.has(value)
		if err != nil || r.held() && !ours {
			res = r.refusal()
			return 0, err
		}
		if numbering != unnumbered {
			if res.Fence, err = r.draw(ours, numbering); err != nil {
				return 0, err
			}
		}
		res.OK, r.grants = true, !ours
		until = r.renew(value, ours, life)
		return until, nil
	})
	return s.granted(key, value, ttl, res, err)
}

// renew makes a token the holder for so many µs, or for longer if it is the holder until then. The change
// is valid only before until.
func (r *record) renew(token string, ours bool, life int64) (until int64) {
	expires, until := r.now+life, int64(forever)
	if ours && r.expires < forever {
		expires, until = max(expires, r.expires), r.expires
	}
	r.put(kindLock, token, expires)
	return until
}

// ExpireIf implements [backends.Store].
func (s *rows) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, value)
	if err != nil {
		return false, err
	}
	// one statement instead of two, if the value has the key
	ok, err := s.exec(ctx, renewals, name, s.dialect.extend, life, name, []byte(value))
	if !ok && err == nil {
		ok, err = s.changeOwn(ctx, renewals, name, value, func(r *record) bool {
			r.expires = max(r.expires, r.now+life)
			return true
		})
	}
	return s.renewed(key, value, ttl, ok, err)
}

// DeleteIf implements [backends.Store].
func (s *rows) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	name, err := s.prepare(ctx, key, value)
	if err != nil {
		return false, err
	}
	ok, err := s.exec(ctx, releases, name, s.dialect.release, name, []byte(value)) // as in ExpireIf
	if !ok && err == nil {
		ok, err = s.changeOwn(ctx, releases, name, value, func(r *record) bool {
			r.put(kindFree, "", r.now)
			return true
		})
	}
	return s.released(key, value, ok, err)
}

// RaiseFence implements [backends.FencedStore].
func (s *rows) RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error) {
	name, err := s.prepare(ctx, key, value)
	if err != nil {
		return false, err
	}
	if err := checkNumber(to); err != nil {
		return false, err
	}
	defer s.own.settle()
	return s.changeOwn(ctx, grants, name, value, func(r *record) bool {
		if r.kept > r.now && r.last > int64(to) {
			return false
		}
		r.last, r.kept = int64(to), forever
		return true
	})
}

// changeOwn changes a key that has the token value, before its end.
func (s *rows) changeOwn(ctx context.Context, from lane, key []byte, value string, by func(r *record) bool) (ok bool, err error) {
	err = s.change(ctx, from, key, func(r *record) (until int64, err error) {
		ok, err = r.has(value)
		until = r.expires
		if ok {
			ok = by(r)
		}
		return until, err
	})
	return ok && err == nil, err
}

// Transfer implements [backends.TransferStore].
func (s *rows) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (res backends.Result, err error) {
	name, life, err := s.prepareTTL(ctx, ttl, key, from, value)
	if err != nil {
		return backends.Result{}, err
	}
	err = s.change(ctx, grants, name, func(r *record) (until int64, err error) {
		res = backends.Result{}
		s.own.shown(r.server)
		ours, err := r.has(value)
		if err != nil || !r.held() {
			return 0, err
		}
		if !ours && string(r.value) != from {
			res = r.refusal()
			return 0, nil
		}
		if numbered {
			if res.Fence, err = r.draw(ours, byClock); err != nil {
				return 0, err
			}
		}
		res.OK = true
		return r.renew(value, true, life), nil
	})
	return s.granted(key, value, ttl, res, err)
}

// Watch implements [backends.Store]: waiters poll.
func (s *rows) Watch(context.Context, string, func()) error { return errPolling }

// OneServer implements [backends.OneServer].
func (s *rows) OneServer() bool { return true }
