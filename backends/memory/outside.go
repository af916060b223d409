package memory

import "time"

// Get returns the value under key and how long it still lives, for tests and other observers. left
// is 0 if the value has no expiry. A value of another type is returned as the empty string. ok is
// false if there is no value, or if it has expired.
func (s *Store) Get(key string) (value string, left time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	switch {
	case !found:
		return "", 0, false
	case e.kind == shared && e.share.holds != nil && e.expires.Equal(e.share.reserved.last()):
		e.expires = e.share.holds.last() // a reservation is beside the key, and does not make it live longer
		return "", e.left(now), e.expires.After(now)
	}
	return e.value, e.left(now), true
}

// Set stores value under key, whatever is there, as other software or an operator might do. With a
// ttl of 0 the value has no expiry, so SetNX reports it as foreign. No limit applies, and nobody is
// woken.
func (s *Store) Set(key, value string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := entry{value: value}
	if ttl != 0 {
		e.expires = now.Add(ttl)
	}
	s.entries.put(key, e, now)
}

// SetOther stores a value of another type under key, whatever is there, such as a list instead of a
// string. SetNX, ExpireIf, DeleteIf and Enter of that key then fail with an error that matches
// [backends.ErrWrongType].
func (s *Store) SetOther(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.put(key, entry{kind: other}, s.now())
}

// SetShared stores a value of the type of holds under key, whatever is there. It is no lock, and has
// no expiry: Enter reports it as foreign.
func (s *Store) SetShared(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.put(key, entry{kind: shared, share: &share{}}, s.now())
}

// Delete removes any value under key, and wakes the watchers of key even if there was none.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	delete(s.entries.rows, key)
	watches := s.watches[key]
	var queued []func()
	for _, waiter := range s.queues[key] {
		if t := s.turns[waiting{key, waiter}]; t != nil {
			queued = append(queued, t.wake)
		}
	}
	s.mu.Unlock()
	wake(watches)
	wakeAll(queued)
}

// Jump moves the store's clock forward by d, or back if d is negative, as an operator or a time
// server may do to a machine. Values end that much sooner or later than their ttl says. Values that
// have ended before the jump do not come back.
func (s *Store) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.entries.sweep(now)
	s.fences.sweep(now)
	for _, e := range s.entries.rows {
		if e.kind == shared {
			e.share.purge(now)
		}
	}
	s.ahead += d
}
