package redisstore

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// What an Inspector is told is read by one script, which writes nothing:
//
//	Inspect  EVALSHA inspect.lua   TYPE, PTTL and GET or ZRANGEBYSCORE of the lock; its queue, reservations and counter

// Inspect tells who holds key. It needs scripts. It works in quarantine too.
func (s *Store) Inspect(ctx context.Context, key string) (backends.State, error) {
	if s.config.scriptless {
		return backends.State{}, driver.BadInput("Inspect needs scripts, and the store has the option WithoutScripts")
	}
	if err := s.ready(ctx); err != nil {
		return backends.State{}, err
	}
	full := s.config.prefix + key
	return inspected(do(ctx, s.line, scripts.Inspect,
		full, queueKey(full), reservedKey(full), fenceKey(full), backends.MaxListed))
}

// inspected reads the reply of inspect.lua.
func inspected(reply any, err error) (backends.State, error) {
	if err != nil {
		return backends.State{}, err
	}
	list, _ := reply.([]any)
	if len(list) != 12 {
		return backends.State{}, unexpected(reply)
	}
	r := reader{ok: true}
	kind, left, label := r.text(list[0]), r.integer(list[1]), r.label(list[2])
	holds, many, group, foreign := r.list(list[3]), r.count(list[4]), r.text(list[5]), r.count(list[6])
	state := backends.State{Reserved: r.count(list[7]), Waiting: r.count(list[9])}
	for _, waiter := range r.list(list[8]) {
		state.Waiters = append(state.Waiters, r.label(waiter))
	}
	number, now := r.text(list[10]), r.number(list[11])
	if n, err := strconv.ParseUint(number, 10, 64); err == nil { // else other software wrote it
		state.Fence = n
	}
	switch {
	case len(holds) != 2*min(many, backends.MaxListed):
		r.ok = false
	case kind == "none" || left == -2: // it may have ended since the script began
	case foreign == 1, left == -1:
		state.Foreign = true
	case kind == "reserved":
		state.Reserved++
	case kind == "string":
		state.Holding = 1
		state.Holds = []backends.Hold{{Holder: label, Left: duration(max(left, 0), time.Millisecond), Slot: -1}}
	case kind == "zset":
		state.Holding, state.Group = many, group
		for i := 0; i < len(holds); i += 2 {
			ends, slot := math.Modf(r.number(holds[i+1])) // see holds.lua
			state.Holds = append(state.Holds, backends.Hold{
				Holder: r.label(holds[i]), Left: duration(max(int64(ends-now)+1, 0), time.Millisecond), Slot: int(slot*2048) - 1,
			})
		}
	}
	if !r.ok {
		return backends.State{}, unexpected(reply)
	}
	return state, nil
}

// reader reads parts of a reply. ok becomes false if one of them has another type.
type reader struct{ ok bool }

func (r *reader) text(part any) string {
	text, ok := part.(string)
	r.ok = r.ok && ok
	return text
}

func (r *reader) integer(part any) int64 {
	n, ok := part.(int64)
	r.ok = r.ok && ok
	return n
}

func (r *reader) count(part any) int {
	n := r.integer(part)
	r.ok = r.ok && n >= 0
	return int(n)
}

func (r *reader) number(part any) float64 {
	n, err := strconv.ParseFloat(r.text(part), 64)
	r.ok = r.ok && err == nil
	return n
}

func (r *reader) label(part any) string {
	if label := r.text(part); backends.ValidHolder(label) {
		return label
	}
	return ""
}

func (r *reader) list(part any) []any {
	parts, ok := part.([]any)
	r.ok = r.ok && ok
	return parts
}
