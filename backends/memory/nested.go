package memory

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// nest has the holds of one owner. Its entry expires with the last hold.
type nest struct {
	owner string
	ends  map[string]time.Time // by token
}

// Enter implements [backends.NestedStore].
func (s *Store) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found, err := s.holds(key, now)
	switch {
	case err != nil:
		return backends.Result{}, err
	case !found:
		e = entry{kind: nested, nest: &nest{owner: owner, ends: make(map[string]time.Time)}}
	case e.expires.IsZero():
		return backends.Result{Foreign: true}, nil
	case !e.nest.holds(token) && (owner == "" || owner != e.nest.owner):
		return backends.Result{Left: e.left(now)}, nil
	}
	s.hold(key, e, token, now.Add(ttl), now)
	return backends.Result{OK: true, Holds: len(e.nest.ends)}, nil
}

// Renew implements [backends.NestedStore].
func (s *Store) Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found, err := s.holds(key, now)
	if !found || !e.nest.holds(token) {
		return false, err
	}
	s.hold(key, e, token, now.Add(ttl), now)
	return true, nil
}

// Leave implements [backends.NestedStore].
func (s *Store) Leave(ctx context.Context, key, token string) (ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ok, watches, err := s.leave(key, token)
	wake(watches) // not under the mutex, as in DeleteIf
	return ok, err
}

func (s *Store) leave(key, token string) (bool, []*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found, err := s.holds(key, now)
	if !found || !e.nest.holds(token) {
		return false, nil, err
	}
	delete(e.nest.ends, token)
	if len(e.nest.ends) == 0 {
		delete(s.entries.rows, key)
		return true, s.watches[key], nil
	}
	e.expires = e.nest.last()
	s.entries.put(key, e, now)
	return true, nil, nil
}

// holds returns the entry of key without the holds that have ended.
func (s *Store) holds(key string, now time.Time) (e entry, found bool, err error) {
	e, found = s.entries.live(key, now)
	switch {
	case !found:
		return entry{}, false, nil
	case e.kind != nested:
		return entry{}, false, errWrongType
	}
	for token, end := range e.nest.ends {
		if !now.Before(end) {
			delete(e.nest.ends, token)
		}
	}
	if e.nest.ends != nil && len(e.nest.ends) == 0 { // an Expire by old software has made the key outlive the holds
		delete(s.entries.rows, key)
		return entry{}, false, nil
	}
	return e, true, nil
}

// hold makes token a hold until end, or until its present end if that is later.
func (s *Store) hold(key string, e entry, token string, end, now time.Time) {
	if end.After(e.nest.ends[token]) {
		e.nest.ends[token] = end
	}
	e.expires = e.nest.last()
	s.entries.put(key, e, now)
}

func (n *nest) holds(token string) bool {
	_, ok := n.ends[token]
	return ok
}

func (n *nest) last() (end time.Time) {
	for _, e := range n.ends {
		if e.After(end) {
			end = e
		}
	}
	return end
}
