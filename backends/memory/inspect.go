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
	now := s.now()
	f, _ := s.fences.live(key, now)
	state := backends.State{Fence: f.last, Waiting: len(s.queues[key])}
	for _, waiter := range s.queues[key][:min(len(s.queues[key]), backends.MaxListed)] {
		state.Waiters = append(state.Waiters, backends.HolderOf(waiter))
	}
	switch e, found := s.entries.live(key, now); {
	case !found:
	case e.kind == other:
		return backends.State{}, errWrongType
	case e.expires.IsZero():
		state.Foreign = true
	case e.kind == shared:
		e.share.show(&state, now)
	case strings.HasPrefix(e.value, reservedFor("")):
		state.Reserved = 1
	default:
		state.Holding = 1
		state.Holds = []backends.Hold{{Holder: backends.HolderOf(e.value), Left: e.left(now), Slot: -1}}
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
			state.Holds = append(state.Holds, backends.Hold{Holder: backends.HolderOf(token), Left: end.Sub(now), Slot: slot})
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
