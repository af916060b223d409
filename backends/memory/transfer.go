package memory

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Transfer implements [backends.TransferStore].
func (s *Store) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (res backends.Result, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	switch {
	case !found:
		return backends.Result{}, nil
	case e.kind != text:
		return backends.Result{}, errWrongType
	case e.value != from && e.value != value:
		return backends.Result{Left: e.left(now), Foreign: e.expires.IsZero(), Holder: backends.InTheWay(backends.LabelOf(e.value))}, nil
	}
	if numbered {
		if res.Fence, err = s.number(key, e.value == value, byClock, now); err != nil {
			return backends.Result{}, err
		}
	}
	until := now.Add(ttl)
	if e.expires.After(until) {
		until = e.expires
	}
	s.entries.put(key, entry{value: value, expires: until}, now)
	res.OK = true
	return res, nil
}

// TransferHold implements [backends.SharedTransferStore].
func (s *Store) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (res backends.Result, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	h, _, err := s.shareOf(key, now)
	switch {
	case err != nil:
		return backends.Result{}, err
	case h == nil:
		e, _ := s.entries.live(key, now)
		return backends.Result{Left: e.left(now), Foreign: e.expires.IsZero()}, nil
	case !h.holds.has(from) && !h.holds.has(token):
		return backends.Result{Holds: len(h.holds)}, nil
	case h.group != group:
		return backends.Result{}, errOtherGroup
	}
	there := h.holds.has(token)
	if numbered {
		if res.Fence, err = s.number(key, there || len(h.holds) > 1, byClock, now); err != nil {
			return backends.Result{}, err
		}
	}
	if !there {
		h.rename(from, token)
	}
	h.add(h.holds, token, now.Add(ttl))
	s.keep(key, h, now)
	res.OK, res.Holds, res.Slot = true, len(h.holds), h.slots[token]
	return res, nil
}

// rename gives the hold from the token to.
func (h *share) rename(from, to string) {
	h.holds[to] = h.holds[from]
	delete(h.holds, from)
	if slot, ok := h.slots[from]; ok {
		h.slots[to] = slot
		delete(h.slots, from)
	}
}
