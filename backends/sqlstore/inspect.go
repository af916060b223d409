package sqlstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/lockstep-go/lockstep/backends"
)

// Inspect implements [backends.Inspector].
func (s *PostgreSQL) Inspect(ctx context.Context, key string) (backends.State, error) {
	if err := s.config.ready(ctx); err != nil {
		return backends.State{}, err
	}
	var text string
	if err := s.exec.Row(ctx, "SELECT lockstep.inspect($1,$2)", []any{s.key(key), int64(backends.MaxListed)}, &text); err != nil {
		return backends.State{}, explain(ctx, err)
	}
	return shown(text)
}

// shown reads what lockstep.inspect tells.
func shown(text string) (backends.State, error) {
	var told struct {
		Kind     int
		Foreign  bool
		Fence    uint64
		Waiting  int
		Waiters  []string
		Holding  int
		Group    string
		Reserved int
		Holds    []struct {
			Holder string
			Left   int64
			Slot   int
		}
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return backends.State{}, fmt.Errorf("unexpected answer to inspect: %w", err)
	}
	if told.Kind > kindShared {
		return backends.State{}, errWrongType
	}
	group, _ := hex.DecodeString(told.Group)
	state := backends.State{
		Holding: told.Holding, Fence: told.Fence, Waiting: told.Waiting, Reserved: told.Reserved, Foreign: told.Foreign,
	}
	if told.Holding > 0 {
		state.Group = string(group)
	}
	for _, w := range told.Waiters {
		state.Waiters = append(state.Waiters, label(w))
	}
	for _, h := range told.Holds {
		state.Holds = append(state.Holds, backends.Hold{Holder: label(h.Holder), Left: duration(h.Left), Slot: h.Slot})
	}
	return state, nil
}

// kindShared is the kind of a key with shared holds.
const kindShared = 3

// label is one from the database, where any program may have written it.
func label(digits string) string {
	text, _ := hex.DecodeString(digits)
	if !backends.ValidHolder(string(text)) {
		return ""
	}
	return string(text)
}
