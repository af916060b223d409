package redisstore

import (
	"context"
	"math"
	"strconv"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// What people are told is read by scripts that write nothing:
//
//	Inspect  EVALSHA inspect.lua   TYPE, PTTL and GETRANGE or ZRANGEBYSCORE of the lock; its queue, reservations and counter
//	List     SCAN                  on one server, and Inspect of each key that it finds
//	Evict    EVALSHA evict.lua     SET, or ZADD and ZREM, of a value that is nobody's token; DEL or ZREM as in a release

// Inspect tells who holds key. It needs scripts. It works in quarantine too.
func (s *Store) Inspect(ctx context.Context, key string) (backends.State, error) {
	return reading(ctx, s, func(ctx context.Context) (backends.State, error) { return s.inspect(ctx, key) })
}

func (s *Store) inspect(ctx context.Context, key string) (backends.State, error) {
	if err := s.showing(ctx, "Inspect"); err != nil {
		return backends.State{}, err
	}
	full := s.config.prefix + key
	return s.shown(do(ctx, s.line, scripts.Inspect,
		full, queueKey(full), reservedKey(full), fenceKey(full), backends.MaxListed))
}

// shown is the State in a reply of inspect.lua. Waiters of a store that takes no positions stand in
// no queue, so an empty queue says nothing of them.
func (s *Store) shown(reply any, err error) (backends.State, error) {
	state, err := inspected(reply, err)
	if err == nil && state.Waiting == 0 && !s.queues() {
		state.Waiting = backends.NotKnown
	}
	return state, err
}

func (s *Store) showing(ctx context.Context, call string) error {
	if s.config.scriptless {
		return backends.Invalid(call + " needs scripts, and the store has the option WithoutScripts")
	}
	return s.ready(ctx)
}

// Evict ends the hold of key whose Print is seen. It needs scripts. It works in quarantine too. A
// sorted set of other software, and one without expiry, is never evicted. The cost grows with the
// number of holds of the key.
func (s *Store) Evict(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
	return forPeople(ctx, s, func(ctx context.Context) (bool, error) { return s.evict(ctx, key, seen, e) })
}

func (s *Store) evict(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
	if err := e.Validate(seen); err != nil {
		return false, backends.Invalid(err.Error())
	}
	if err := s.showing(ctx, "Evict"); err != nil {
		return false, err
	}
	full, value, foreign := s.config.prefix+key, e.Value(seen), ""
	if e.Now {
		value = ""
	}
	if e.Foreign {
		foreign = "foreign"
	}
	reply, err := once(ctx, s.line, scripts.Evict,
		full, queueKey(full), reservedKey(full), seen, value, foreign, wakeChannel(full), reservation, s.counted())
	if err == nil && reply == int64(2) {
		return false, errForeign
	}
	return yes(reply, err)
}

var errForeign = backends.AsPermanent(backends.ErrForeign)

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
	kind, left, value := r.text(list[0]), r.integer(list[1]), r.list(list[2])
	holds, many, group, foreign := r.list(list[3]), r.count(list[4]), r.text(list[5]), r.count(list[6])
	state := backends.State{Reserved: r.count(list[7]), Waiting: int(r.integer(list[9]))}
	for _, waiter := range r.list(list[8]) {
		state.Waiters = append(state.Waiters, r.label(waiter))
	}
	number, now := r.text(list[10]), r.number(list[11])
	if n, err := strconv.ParseUint(number, 10, 64); err == nil { // else other software wrote it
		state.Fence = n
	}
	switch {
	case len(holds) != min(many, backends.MaxListed), state.Waiting < backends.NotKnown:
		r.ok = false
	case kind == "none" || left == -2: // it may have ended since the script began
	case foreign == 1, left == -1:
		state.Foreign = true
		if kind != "zset" {
			state.Print = r.hold(value, 0, -1).Print
		}
	case kind == "reserved":
		state.Reserved++
	case kind == "string":
		state.Holding = 1
		state.Holds = []backends.Hold{r.hold(value, left, -1)}
	case kind == "zset":
		state.Holding, state.Group = many, group
		for _, part := range holds {
			told := r.list(part)
			if len(told) != 4 {
				return backends.State{}, unexpected(reply)
			}
			ends, slot := math.Modf(r.number(told[3])) // see holds.lua
			state.Holds = append(state.Holds, r.hold(told[:3], int64(ends-now)+1, int(slot*2048)-1))
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

// hold reads the label of a token, its print and whether it is one. The key lives for left ms.
func (r *reader) hold(told []any, left int64, slot int) backends.Hold {
	if len(told) != 3 {
		r.ok = false
		return backends.Hold{}
	}
	return backends.HoldOf(r.text(told[0]), r.text(told[1]), r.count(told[2]) == 1, leftOf(left), slot)
}

func (r *reader) list(part any) []any {
	parts, ok := part.([]any)
	r.ok = r.ok && ok
	return parts
}
