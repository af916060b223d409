package memory

import (
	"context"
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
		keep  time.Duration // how long a reservation for it lasts
		late  time.Time     // when a reservation that it has not taken ends; zero: it has had none
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
	s.arrive(key, ttl, t)
	e, found := s.entries.live(key, now)
	switch {
	case found && t.Waiter != "" && e.value == reservedFor(t.Waiter):
		delete(s.entries.rows, key)
	case !found && t.InOrder:
		var first string
		if first, wakes = s.reserve(key, t.Waiter, now); first != "" && first != t.Waiter {
			res.Left = s.turns[waiting{key, first}].keep
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
		return backends.Invalid("the waiter has no name")
	}
	if err := checkWaiter(waiter); err != nil {
		return err
	}
	p, t := waiting{key, waiter}, &turn{keep: backends.Reservation, wake: func() {
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
		now := s.now()
		wasHead := s.head(p.key, now) == p.waiter
		delete(s.turns, p)
		s.dequeue(p.key, p.waiter)
		switch e, found := s.entries.live(p.key, now); {
		case found && e.kind == shared:
			wakes = s.withdraw(p.key, p.waiter, wasHead, now)
		case found && e.value == reservedFor(p.waiter):
			wakes = s.free(p.key, now)
		}
		if head := s.head(p.key, now); wasHead && len(wakes) == 0 && head != "" { // it looks when the lease ends
			wakes = []func(){s.turns[waiting{p.key, head}].wake}
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
	return append(wakes, s.others(key)...)
}

// others wakes those that no reservation is for, when all waiters are late: they, and all that watch.
func (s *Store) others(key string) (wakes []func()) {
	for _, w := range s.watches[key] {
		wakes = append(wakes, w.wake)
	}
	for _, waiter := range s.unreserved(key, s.now()) {
		wakes = append(wakes, s.turns[waiting{key, waiter}].wake)
	}
	return wakes
}

// unreserved returns the waiters in the queue without those that have a reservation now.
func (s *Store) unreserved(key string, now time.Time) (waiters []string) {
	e, found := s.entries.live(key, now)
	for _, waiter := range s.queues[key] {
		switch {
		case s.turns[waiting{key, waiter}] == nil:
		case found && e.value == reservedFor(waiter):
		case found && e.kind == shared && e.share.reserved[waiter].After(now):
		default:
			waiters = append(waiters, waiter)
		}
	}
	return waiters
}

// reserve reserves the key for the head of the queue, and returns it. If me is the head, it needs no
// reservation, and reserve does not change the key.
func (s *Store) reserve(key, me string, now time.Time) (first string, wakes []func()) {
	first = s.head(key, now)
	if first == "" || first == me {
		return first, nil
	}
	t := s.turns[waiting{key, first}]
	t.late = now.Add(t.keep)
	s.entries.put(key, entry{value: reservedFor(first), expires: t.late}, now)
	s.remindAfter(key, t.keep, now)
	return first, []func(){t.wake}
}

// remindAfter wakes the head of the queue after a reservation: if that is not taken, the head must
// learn of it.
func (s *Store) remindAfter(key string, keep time.Duration, now time.Time) {
	if s.head(key, now) == "" {
		return
	}
	time.AfterFunc(keep, func() {
		s.mu.Lock()
		t := s.turns[waiting{key, s.head(key, s.now())}]
		s.mu.Unlock()
		if t != nil {
			t.wake()
		}
	})
}

// head returns the first waiter in the queue that is not late, empty for none. It removes waiters
// before it that can't be woken, and those that were late for too long.
func (s *Store) head(key string, now time.Time) string {
	for i := 0; i < len(s.queues[key]); {
		waiter := s.queues[key][i]
		switch t := s.turns[waiting{key, waiter}]; {
		case t == nil || !t.late.IsZero() && now.Sub(t.late) > backends.LateLimit:
			s.dequeue(key, waiter)
		case t.late.IsZero():
			return waiter
		default:
			i++
		}
	}
	return ""
}

// arrive notes an attempt of a waiter, which is not late any more.
func (s *Store) arrive(key string, ttl time.Duration, t backends.Turn) {
	if mine := s.turns[waiting{key, t.Waiter}]; mine != nil {
		mine.keep, mine.late = t.Reservation(ttl), time.Time{}
	}
}

// enqueue gives a waiter that can be woken the last position, unless it has one, and returns the
// position.
func (s *Store) enqueue(key, waiter string) (position int) {
	if waiter == "" || s.turns[waiting{key, waiter}] == nil {
		return 0
	}
	if !slices.Contains(s.queues[key], waiter) {
		s.queues[key] = append(s.queues[key], waiter)
	}
	return s.position(key, waiter)
}

// position returns the position of a waiter that is not late; 0: it has none.
func (s *Store) position(key, waiter string) (position int) {
	for _, other := range s.queues[key] {
		if t := s.turns[waiting{key, other}]; t == nil || t.late.IsZero() {
			position++
		}
		if other == waiter {
			return position
		}
	}
	return 0
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
		return backends.Invalidf("waiter %q has an @", waiter)
	}
	return nil
}

func wakeAll(wakes []func()) {
	for _, wake := range wakes {
		wake()
	}
}
