package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A queue has the waiters of one key by their unique names, the head first. turns has the waiters
// that can be woken.
type (
	queue   []string
	waiting struct{ key, waiter string }
	turn    struct {
		wake  func()
		group string // of the waiter's last Enter
		limit int
	}
)

// reservedFor returns the value of a key that is reserved for a waiter. No caller can use it as its
// own value.
func reservedFor(waiter string) string { return "\x00reserved for " + waiter }

// SetNXQueued implements [backends.QueuedStore].
func (s *Store) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.setInTurn(ctx, key, value, ttl, t, unnumbered)
}

func (s *Store) setInTurn(
	ctx context.Context, key, value string, ttl time.Duration, t backends.Turn, n numbering,
) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	if err := checkWaiter(t.Waiter); err != nil {
		return backends.Result{}, err
	}
	res, wakes, err := s.takeTurn(key, value, ttl, t, n)
	wakeAll(wakes)
	return res, err
}

func (s *Store) takeTurn(key, value string, ttl time.Duration, t backends.Turn, n numbering) (res backends.Result, wakes []func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	switch {
	case found && t.Waiter != "" && e.value == reservedFor(t.Waiter):
		delete(s.entries.rows, key)
	case !found && t.InOrder:
		var first string
		if first, wakes = s.reserve(key, t.Waiter, now); first != "" && first != t.Waiter {
			res.Left = backends.Reservation
			res.Position = s.enqueue(key, t.Waiter)
			return res, wakes, nil
		}
	}
	res, again, err := s.grant(key, value, ttl, now)
	switch {
	case err != nil:
	case !res.OK:
		res.Position = s.enqueue(key, t.Waiter)
	default:
		s.dequeue(key, t.Waiter)
		if n == unnumbered {
			break
		}
		if res.Fence, err = s.number(key, again, n, now); err != nil {
			delete(s.entries.rows, key)
			res = backends.Result{}
		}
	}
	return res, wakes, err
}

// WatchQueued implements [backends.QueuedStore].
func (s *Store) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if waiter == "" {
		return permanent{errors.New("the waiter has no name")}
	}
	if err := checkWaiter(waiter); err != nil {
		return err
	}
	p, t := waiting{key, waiter}, &turn{wake: func() {
		if ctx.Err() == nil { // AfterFunc may run later than the end of ctx
			wake()
		}
	}}
	s.mu.Lock()
	s.turns[p] = t
	s.mu.Unlock()
	context.AfterFunc(ctx, func() { s.leaveQueue(p, t) })
	return nil
}

// leaveQueue removes a waiter whose ctx is done.
func (s *Store) leaveQueue(p waiting, t *turn) {
	s.mu.Lock()
	var wakes []func()
	if s.turns[p] == t { // otherwise the waiter watches again
		delete(s.turns, p)
		wasHead := len(s.queues[p.key]) > 0 && s.queues[p.key][0] == p.waiter
		s.dequeue(p.key, p.waiter)
		now := s.now()
		switch e, found := s.entries.live(p.key, now); {
		case found && e.kind == shared:
			wakes = s.withdraw(p.key, p.waiter, wasHead, now)
		case found && e.value == reservedFor(p.waiter):
			wakes = s.free(p.key, now)
		}
		if head := s.head(p.key); wasHead && len(wakes) == 0 && head != nil { // it looks when the lease ends
			wakes = []func(){head.wake}
		}
	}
	s.mu.Unlock()
	wakeAll(wakes)
}

// free deletes the key or reserves it for the first waiter, and returns the functions that wake.
// The mutex must be held here and in the functions below.
func (s *Store) free(key string, now time.Time) (wakes []func()) {
	delete(s.entries.rows, key)
	first, wakes := s.reserve(key, "", now)
	if first != "" {
		return wakes
	}
	for _, w := range s.watches[key] {
		wakes = append(wakes, w.wake)
	}
	return wakes
}

// reserve reserves the key for the first waiter in the queue that can be woken, and returns the
// waiter. If me is first, it needs no reservation, and reserve does not change the key.
func (s *Store) reserve(key, me string, now time.Time) (first string, wakes []func()) {
	for q := s.queues[key]; len(q) > 0; q = s.queues[key] {
		first = q[0]
		if first == me {
			return me, nil
		}
		s.dequeue(key, first)
		t := s.turns[waiting{key, first}]
		if t == nil {
			continue
		}
		s.entries.put(key, entry{value: reservedFor(first), expires: now.Add(backends.Reservation)}, now)
		if len(s.queues[key]) > 0 { // if the first waiter does not come, the next must learn of it
			time.AfterFunc(backends.Reservation, func() { s.remind(key) })
		}
		return first, []func(){t.wake}
	}
	return "", nil
}

// remind wakes the head of the queue at that time.
func (s *Store) remind(key string) {
	s.mu.Lock()
	t := s.head(key)
	s.mu.Unlock()
	if t != nil {
		t.wake()
	}
}

// head returns the head of the queue, or nil if it can't be woken.
func (s *Store) head(key string) *turn {
	if q := s.queues[key]; len(q) > 0 {
		return s.turns[waiting{key, q[0]}]
	}
	return nil
}

// enqueue gives a waiter that can be woken the last position, unless it has one, and returns the
// position.
func (s *Store) enqueue(key, waiter string) (position int) {
	if waiter == "" || s.turns[waiting{key, waiter}] == nil {
		return 0
	}
	i := slices.Index(s.queues[key], waiter)
	if i < 0 {
		i = len(s.queues[key])
		s.queues[key] = append(s.queues[key], waiter)
	}
	return i + 1
}

func (s *Store) dequeue(key, waiter string) {
	q := s.queues[key]
	i := slices.Index(q, waiter)
	if i < 0 {
		return
	}
	if q = slices.Delete(q, i, i+1); len(q) > 0 {
		s.queues[key] = q
	} else {
		delete(s.queues, key)
	}
}

func checkWaiter(waiter string) error {
	if strings.Contains(waiter, "@") {
		return permanent{fmt.Errorf("waiter %q has an @", waiter)}
	}
	return nil
}

func wakeAll(wakes []func()) {
	for _, wake := range wakes {
		wake()
	}
}
