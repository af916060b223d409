package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Inspect implements [backends.Inspector].
func (s *Store) Inspect(ctx context.Context, key string) (backends.State, error) {
	if err := ctx.Err(); err != nil {
		return backends.State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(key, s.now())
}

// state is what Inspect tells. The mutex must be held.
func (s *Store) state(key string, now time.Time) (backends.State, error) {
	f, _ := s.fences.live(key, now)
	waiters := s.unreserved(key, now)
	state := backends.State{Fence: f.last, Waiting: len(waiters)}
	for _, waiter := range waiters[:min(len(waiters), backends.MaxListed)] {
		state.Waiters = append(state.Waiters, backends.HolderOf(waiter))
	}
	switch e, found := s.entries.live(key, now); {
	case !found:
	case e.kind == other:
		return backends.State{}, errWrongType
	case e.expires.IsZero():
		state.Foreign = true
		if e.kind == text {
			state.Print = backends.PrintOf(e.value)
		}
	case e.kind == shared:
		e.share.show(&state, now)
	case strings.HasPrefix(e.value, reservedFor("")):
		state.Reserved = 1
	default:
		state.Holding = 1
		state.Holds = []backends.Hold{holdOf(e.value, e.left(now), -1)}
	}
	return state, nil
}

// show puts into state what has not ended.
func (h *share) show(state *backends.State, now time.Time) {
	for token, end := range h.holds {
		if end.After(now) {
			slot, ok := h.slots[token]
			if !ok {
				slot = -1
			}
			state.Holds = append(state.Holds, holdOf(token, end.Sub(now), slot))
		}
	}
	slices.SortFunc(state.Holds, func(a, b backends.Hold) int { return cmp.Compare(a.Left, b.Left) })
	if state.Holding = len(state.Holds); state.Holding > 0 {
		state.Group = h.group
	}
	state.Holds = state.Holds[:min(state.Holding, backends.MaxListed)]
	for _, end := range h.reserved {
		if end.After(now) {
			state.Reserved++
		}
	}
}

func holdOf(token string, left time.Duration, slot int) backends.Hold {
	return backends.HoldOf(backends.LabelOf(token), backends.PrintOf(token), backends.IsToken(token), left, slot)
}

// List implements [backends.Lister]. Each call looks at all keys of the store. Prefix may be empty.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	if err := ctx.Err(); err != nil {
		return backends.Page{}, err
	}
	if err := backends.ValidateLimit(limit); err != nil {
		return backends.Page{}, backends.AsPermanent(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key := range s.entries.rows {
		if key > after && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var page backends.Page
	if len(keys) > limit {
		keys = keys[:limit]
		page.Next = keys[limit-1]
	}
	for _, key := range keys {
		state, err := s.state(key, s.now())
		if err == nil && (state.Holding > 0 || state.Reserved > 0 || state.Foreign) {
			page.Keys = append(page.Keys, backends.KeyState{Key: key, State: state})
		}
	}
	return page, nil
}

// Evict implements [backends.Evictor].
func (s *Store) Evict(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := e.Validate(seen); err != nil {
		return false, backends.AsPermanent(err)
	}
	ok, wakes, err := s.evict(key, seen, e)
	wakeAll(wakes) // not under the mutex, as in DeleteIf
	return ok, err
}

func (s *Store) evict(key, seen string, e backends.Eviction) (ok bool, wakes []func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	there, found := s.entries.live(key, now)
	switch {
	case !found:
		return false, nil, nil
	case there.kind == other:
		return false, nil, errWrongType
	case there.kind == shared:
		return s.evictHold(key, seen, e, now)
	case backends.PrintOf(there.value) != seen || strings.HasPrefix(there.value, reservedFor("")):
		return false, nil, nil
	case !e.Foreign && !backends.IsToken(there.value), there.expires.IsZero() && !(e.Foreign && e.Now):
		return false, nil, errForeign
	case e.Now:
		return true, s.free(key, now), nil
	}
	there.value = e.Value(seen)
	s.entries.put(key, there, now)
	return true, nil, nil
}

func (s *Store) evictHold(key, seen string, e backends.Eviction, now time.Time) (ok bool, wakes []func(), err error) {
	h, _, _ := s.shareOf(key, now)
	if h == nil {
		return false, nil, errForeign
	}
	for token := range h.holds {
		switch {
		case backends.PrintOf(token) != seen:
			continue
		case !e.Foreign && !backends.IsToken(token):
			return false, nil, errForeign
		case e.Now:
			delete(h.holds, token)
			delete(h.slots, token)
			return true, s.room(key, h, now), nil
		}
		h.rename(token, e.Value(seen))
		return true, nil, nil
	}
	return false, nil, nil
}

var errForeign = backends.AsPermanent(backends.ErrForeign)
