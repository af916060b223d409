package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/backends"
)

// List sends one SCAN, to one server, and Inspect for each key that it finds. It needs scripts. It
// works in quarantine too. In a cluster it goes from master to master, by the slots that each has.
// A database with many other keys has many pages with few locks: SCAN looks at all keys.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	full := s.config.prefix + prefix
	if full == "" {
		return backends.Page{}, backends.Invalid("the prefix is empty: the server may have keys of other software (see redisstore.WithPrefix)")
	}
	page, _, err := s.list(ctx, full, after, limit)
	return page, err
}

// ListOwn is List for all keys, also if the store has no prefix. It tells only the keys whose values have
// the form of a lease: a program of Lockstep has them. others counts the keys that it has passed over,
// which may be data or locks of other software.
func (s *Store) ListOwn(ctx context.Context, after string, limit int) (page backends.Page, others int, err error) {
	page, seen, err := s.list(ctx, s.config.prefix, after, limit)
	page.Keys = slices.DeleteFunc(page.Keys, func(k backends.KeyState) bool {
		return k.Foreign || len(k.Holds) > 0 && !slices.ContainsFunc(k.Holds, func(h backends.Hold) bool { return !h.Foreign })
	})
	return page, seen - len(page.Keys), err
}

// list reads a page of the keys that begin with full, and counts all that it has looked at.
func (s *Store) list(ctx context.Context, full, after string, limit int) (page backends.Page, seen int, err error) {
	if err := backends.ValidateLimit(limit); err != nil {
		return page, 0, backends.Invalid(err.Error())
	}
	at, err := readPlace(full, after)
	if err != nil {
		return page, 0, err
	}
	if err := s.showing(ctx, "List"); err != nil {
		return page, 0, err
	}
	found, err := reading(ctx, s, func(ctx context.Context) (found, error) { return s.scan(ctx, at, full, limit) })
	if err != nil {
		return page, 0, err
	}
	page.Next = found.next
	page.Keys, err = s.inspectAll(ctx, found.keys)
	return page, len(found.keys), err
}

// found is what one SCAN shows: keys without the prefix of the store, and the next place.
type found struct {
	keys []string
	next string
}

// A place is where a SCAN goes on: on the server that has the slots from first to last.
type place struct {
	first, last int
	cursor      uint64
}

const lastSlot = 16383

// slotsOf are the slots that keys with a prefix may be in. A hash tag in it decides the slot of
// all.
func slotsOf(full string) place {
	if hashTag(full) == full {
		return place{last: lastSlot}
	}
	return place{first: slot(full), last: slot(full)}
}

// readPlace reads the Next of a Page.
func readPlace(full, after string) (place, error) {
	whole := slotsOf(full)
	if after == "" {
		return whole, nil
	}
	var at place
	slots, cursor, _ := strings.Cut(after, ":")
	first, last, _ := strings.Cut(slots, "-")
	var errs [3]error
	at.first, errs[0] = strconv.Atoi(first)
	at.last, errs[1] = strconv.Atoi(last)
	at.cursor, errs[2] = strconv.ParseUint(cursor, 10, 64)
	if errors.Join(errs[:]...) != nil || at.first < whole.first || at.first > at.last || at.last > whole.last {
		return at, backends.Invalidf("after %q is not the Next of a page", after)
	}
	return at, nil
}

func (p place) String() string { return fmt.Sprintf("%d-%d:%d", p.first, p.last, p.cursor) }

func (s *Store) scan(ctx context.Context, at place, full string, limit int) (f found, err error) {
	end, key := slotsOf(full).last, ""
	if s.clustered() {
		key = keyIn(full, at.first)
	}
	show := func(p *pinned) error {
		if key != "" {
			if at.last, err = s.reach(ctx, p, key, at); err != nil {
				return err
			}
		}
		reply, err := p.do(ctx, "SCAN", strconv.FormatUint(at.cursor, 10), "MATCH", pattern(full), "COUNT", limit)
		if err != nil {
			return err
		}
		f.keys, at.cursor, err = s.scanned(reply, at, full)
		return err
	}
	if err = s.line.on(ctx, key, show); isDropped(err) { // see look
		err = s.line.on(ctx, key, show)
	}
	switch {
	case err != nil || at.cursor == 0 && at.last == end:
		return f, err
	case at.cursor == 0:
		at.first, at.last = at.last+1, end
	}
	f.next = at.String()
	return f, nil
}

// reach returns the last slot of the range that one server of a cluster has from at.first on. The
// question for a key shows whether it is this server: another one replies MOVED.
func (s *Store) reach(ctx context.Context, p *pinned, key string, at place) (last int, err error) {
	if _, err := p.do(ctx, "PTTL", key); err != nil || at.cursor != 0 || at.first == at.last {
		return at.last, err
	}
	slots, err := p.do(ctx, "CLUSTER", "SLOTS")
	if err != nil {
		return 0, err
	}
	return together(slots, at)
}

// pattern matches at least the keys with a prefix: the embedded server takes no pattern that is not
// UTF-8, and has ways of its own with a backslash.
func pattern(prefix string) string {
	for i, r := range prefix {
		if r == utf8.RuneError {
			prefix = prefix[:i]
			break
		}
	}
	return anything.Replace(prefix) + "*"
}

var anything = strings.NewReplacer(`\`, "?", "*", "?", "[", "?")

// scanned reads the reply of SCAN, and takes the keys of locks that begin with full. A server that
// has several ranges of slots is scanned for each, so that a place need not remember the server.
func (s *Store) scanned(reply any, at place, full string) (keys []string, cursor uint64, err error) {
	list, _ := reply.([]any)
	if len(list) != 2 {
		return nil, 0, unexpected(reply)
	}
	r := reader{ok: true}
	cursor, err = strconv.ParseUint(r.text(list[0]), 10, 64)
	for _, part := range r.list(list[1]) {
		key := r.text(part)
		in := slot(key)
		if strings.HasPrefix(key, full) && in >= at.first && in <= at.last && !strings.Contains(key, "\x00") { // see queueKey
			keys = append(keys, strings.TrimPrefix(key, s.config.prefix))
		}
	}
	if err != nil || !r.ok {
		return nil, 0, unexpected(reply)
	}
	return keys, cursor, nil
}

// together reads CLUSTER SLOTS: the last of the slots up to at.last that the server of at.first
// has.
func together(reply any, at place) (last int, err error) {
	r := reader{ok: true}
	for _, part := range r.list(reply) {
		if span := r.list(part); len(span) > 2 && r.count(span[0]) <= at.first && at.first <= r.count(span[1]) {
			last = min(r.count(span[1]), at.last)
		}
	}
	if !r.ok || last < at.first {
		return 0, unexpected(reply)
	}
	return last, nil
}

// keyIn is a key with a prefix in a slot.
func keyIn(prefix string, want int) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("%s{%d}", prefix, n); slot(key) == want {
			return key
		}
	}
}

// inspectAll tells of the keys that keep callers out. Calls at the same time share round trips.
func (s *Store) inspectAll(ctx context.Context, keys []string) (all []backends.KeyState, err error) {
	states, errs := make([]backends.State, len(keys)), make([]error, len(keys))
	var running sync.WaitGroup
	next := make(chan int)
	for range min(len(keys), inspecting) {
		running.Go(func() {
			for i := range next {
				states[i], errs[i] = s.Inspect(ctx, keys[i])
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	running.Wait()
	for i, key := range keys {
		switch state := states[i]; {
		case errors.Is(errs[i], backends.ErrWrongType):
		case errs[i] != nil:
			return nil, errs[i]
		case state.Holding > 0 || state.Reserved > 0 || state.Foreign:
			all = append(all, backends.KeyState{Key: key, State: state})
		}
	}
	return all, nil
}

// inspecting is how many keys are asked for at a time. The server runs no other command during a
// script, and calls for locks may be in the same round trip.
const inspecting = 32
