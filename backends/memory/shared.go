package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// share has the holds of one key, and the reservations for its waiters. All are of one group. It
// ends with the last of them.
type share struct {
	group    string
	holds    ends           // by token; nil: this is no lock
	reserved ends           // by waiter
	slots    map[string]int // by token, of the holds that have one
	first    time.Time
}

// ends says when each of some holds or reservations ends.
type ends map[string]time.Time

func newShare() *share { return &share{holds: ends{}, reserved: ends{}, slots: map[string]int{}} }

// Enter implements [backends.SharedStore].
func (s *Store) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	if err := checkWaiter(a.Waiter); err != nil {
		return backends.Result{}, err
	}
	if err := a.Validate(); err != nil {
		return backends.Result{}, backends.AsPermanent(err)
	}
	res, wakes, err := s.enter(key, token, ttl, a)
	wakeAll(wakes) // not under the mutex, as in DeleteIf
	return res, err
}

func (s *Store) enter(key, token string, ttl time.Duration, a backends.Admission) (res backends.Result, wakes []func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	h, ended, err := s.shareOf(key, now)
	switch {
	case err != nil:
		return backends.Result{}, nil, err
	case h == nil:
		e, _ := s.entries.live(key, now)
		return backends.Result{Left: e.left(now), Foreign: e.expires.IsZero()}, nil, nil
	}
	s.arrive(key, ttl, a.Turn)
	reserved := h.reserved.has(a.Waiter)
	admitted := h.holds.has(token) || reserved
	delete(h.reserved, a.Waiter)
	if a.InOrder && !admitted {
		wakes = s.admit(key, a.Waiter, h, now)
		first := s.head(key, now)
		admitted = first == "" || first == a.Waiter
	} else {
		admitted = true
	}
	// whatever was reserved after its own reservation has counted that
	converts := reserved && a.Group == h.group && (a.Limit == 0 || len(h.holds) < a.Limit)
	if h.holds.has(token) || converts || admitted && h.fits(a.Group, a.Limit) {
		res, err = s.join(key, token, ttl, a, h, now)
	} else {
		res = backends.Result{Holds: len(h.holds), Position: s.enqueue(key, a.Waiter)}
		res.Left, res.Holder = h.left(a, now)
		if t := s.turns[waiting{key, a.Waiter}]; t != nil {
			t.group, t.limit = a.Group, a.Limit
		}
	}
	if ended || reserved && !res.OK { // there may be room for others
		wakes = append(wakes, s.admit(key, "", h, now)...)
		res.Position = s.position(key, a.Waiter)
	}
	switch {
	case res.OK:
		s.keep(key, h, now)
	case ended || reserved || len(wakes) > 0:
		s.keepExpiry(key, h, now)
	}
	return res, wakes, err
}

// join adds the hold.
func (s *Store) join(key, token string, ttl time.Duration, a backends.Admission, h *share, now time.Time) (res backends.Result, err error) {
	if a.Numbered {
		if res.Fence, err = s.number(key, len(h.holds) > 0, byClock, now); err != nil {
			return backends.Result{}, err
		}
	}
	s.dequeue(key, a.Waiter)
	if h.count() == 0 {
		h.group = a.Group
	}
	if a.Slots && !h.holds.has(token) {
		h.slots[token] = h.freeSlot()
	}
	h.add(h.holds, token, now.Add(ttl))
	res.Slot = h.slots[token]
	res.OK, res.Holds, res.Room = true, len(h.holds), a.Room(len(h.holds))
	return res, nil
}

// Renew implements [backends.SharedStore].
func (s *Store) Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	h, _, err := s.shareOf(key, now)
	if h == nil || !h.holds.has(token) {
		return false, err
	}
	h.add(h.holds, token, now.Add(ttl))
	s.keep(key, h, now)
	return true, nil
}

// Leave implements [backends.SharedStore].
func (s *Store) Leave(ctx context.Context, key, token string) (ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ok, wakes, err := s.leave(key, token)
	wakeAll(wakes) // not under the mutex, as in DeleteIf
	return ok, err
}

func (s *Store) leave(key, token string) (ok bool, wakes []func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	h, _, err := s.shareOf(key, now)
	if h == nil || !h.holds.has(token) {
		return false, nil, err
	}
	delete(h.holds, token)
	delete(h.slots, token)
	return true, s.room(key, h, now), nil
}

// withdraw makes room for others after a waiter has left that was the head of the queue, or that has a
// reservation. The mutex must be held here and in the functions below.
func (s *Store) withdraw(key, waiter string, wasHead bool, now time.Time) (wakes []func()) {
	h, _, err := s.shareOf(key, now)
	if err != nil || h == nil || !h.reserved.has(waiter) && !wasHead {
		return nil
	}
	delete(h.reserved, waiter)
	return s.room(key, h, now)
}

// room wakes waiters after something has ended: those in the queue that fit or, if nobody is left
// there, all that watch.
func (s *Store) room(key string, h *share, now time.Time) (wakes []func()) {
	wakes = s.admit(key, "", h, now)
	s.keep(key, h, now)
	if s.head(key, now) != "" {
		return wakes
	}
	return append(wakes, s.others(key)...)
}

// admit reserves room for waiters from the head of the queue, until one does not fit or is me.
func (s *Store) admit(key, me string, h *share, now time.Time) (wakes []func()) {
	longest := time.Duration(0)
	for waiter := s.head(key, now); waiter != "" && waiter != me; waiter = s.head(key, now) {
		t := s.turns[waiting{key, waiter}]
		if !h.fits(t.group, t.limit) {
			break
		}
		h.group = t.group
		t.late = now.Add(t.keep)
		h.add(h.reserved, waiter, t.late)
		longest = max(longest, t.keep)
		wakes = append(wakes, t.wake)
	}
	if len(wakes) > 0 {
		s.remindAfter(key, longest, now)
	}
	return wakes
}

// shareOf returns the share of key without what has ended, and whether anything had. A free key has
// an empty one. It is nil for a value that is no lock.
func (s *Store) shareOf(key string, now time.Time) (h *share, ended bool, err error) {
	e, found := s.entries.live(key, now)
	switch {
	case !found:
		return newShare(), true, nil
	case e.kind != shared:
		return nil, false, errWrongType
	case e.share.holds == nil:
		return nil, false, nil
	}
	return e.share, e.share.purge(now), nil
}

// keep stores the share: it lives as long as its last hold or reservation.
func (s *Store) keep(key string, h *share, now time.Time) {
	if h.count() == 0 {
		delete(s.entries.rows, key)
		return
	}
	s.entries.put(key, entry{kind: shared, share: h, expires: h.last()}, now)
}

// keepExpiry is keep after a call that adds and ends no hold. It leaves an expiry alone that other software
// has set, unless a reservation ends later.
func (s *Store) keepExpiry(key string, h *share, now time.Time) {
	before, found := s.entries.live(key, now)
	s.keep(key, h, now)
	if !found || !before.set || h.count() == 0 {
		return
	}
	if end := h.reserved.last(); end.After(before.expires) {
		before.expires = end
	}
	s.entries.put(key, before, now)
}

// count is the number of holds and reservations.
func (h *share) count() int { return len(h.holds) + len(h.reserved) }

func (h *share) fits(group string, limit int) bool {
	n := h.count()
	return n == 0 || group == h.group && (limit == 0 || n < limit)
}

// add lets a hold or a reservation live until end, or until its present end if that is later.
func (h *share) add(to ends, name string, end time.Time) {
	if end.After(to[name]) {
		to[name] = end
	}
	h.mayEnd(end)
}

// mayEnd notes that nothing ends before end, unless it is noted that something does.
func (h *share) mayEnd(end time.Time) {
	if h.first.IsZero() || end.Before(h.first) {
		h.first = end
	}
}

// purge removes what has ended, and reports whether anything had.
func (h *share) purge(now time.Time) (ended bool) {
	if now.Before(h.first) {
		return false
	}
	h.first = time.Time{}
	for _, es := range []ends{h.holds, h.reserved} {
		for name, end := range es {
			if !now.Before(end) {
				delete(es, name)
				ended = true
				if !h.holds.has(name) {
					delete(h.slots, name)
				}
			} else {
				h.mayEnd(end)
			}
		}
	}
	return ended
}

// freeSlot is the lowest that no hold has.
func (h *share) freeSlot() int {
	taken := slices.Collect(maps.Values(h.slots))
	for slot := 0; ; slot++ {
		if !slices.Contains(taken, slot) {
			return slot
		}
	}
}

// left is how long until the call would be admitted if no hold is renewed or released: until all
// have ended, or as many as are too many for its limit. holder is the label of the last of those.
func (h *share) left(a backends.Admission, now time.Time) (left time.Duration, holder string) {
	n := h.count()
	if n == 0 {
		return 0, ""
	}
	tooMany := n
	if a.Group == h.group && a.Limit > 0 {
		tooMany = max(n-a.Limit+1, 1)
	}
	type one struct {
		token string // empty: a reservation
		end   time.Time
	}
	all := make([]one, 0, n)
	for token, end := range h.holds {
		all = append(all, one{token, end})
	}
	for _, end := range h.reserved {
		all = append(all, one{"", end})
	}
	slices.SortFunc(all, func(a, b one) int { return a.end.Compare(b.end) })
	last := all[tooMany-1]
	return last.end.Sub(now), backends.InTheWay(backends.LabelOf(last.token))
}

// last is when the last hold or reservation ends.
func (h *share) last() time.Time {
	last := h.holds.last()
	if end := h.reserved.last(); end.After(last) {
		last = end
	}
	return last
}

func (es ends) last() (last time.Time) {
	for _, end := range es {
		if end.After(last) {
			last = end
		}
	}
	return last
}

func (es ends) has(name string) bool {
	_, ok := es[name]
	return ok
}
