package memory

import "time"

// Get returns what is stored under key and how long it still lives, for tests and for whoever looks from outside. left
// is 0 if the value has no expiry. A value of another type reads as the empty string. ok is false if there is
// nothing, or if it has expired.
func (s *Store) Get(key string) (value string, left time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	if !found {
		return "", 0, false
	}
	return e.value, e.left(now), true
}

// Set stores value under key whatever was there, as other software or an operator might do. With a ttl of 0 it has no
// expiry, so SetNX reports it as foreign. No limit applies, and nobody is woken.
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

// SetOther puts a value of another type under key whatever was there, such as a list where a string should be. SetNX,
// ExpireIf, DeleteIf and Enter of that key then fail with an error that matches [backends.ErrWrongType].
func (s *Store) SetOther(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.put(key, entry{kind: other}, s.now())
}

// SetNested puts holds of nobody, which never end, under key whatever was there, so that Enter reports it as foreign.
func (s *Store) SetNested(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.put(key, entry{kind: nested, nest: &nest{}}, s.now())
}

// Delete removes what is stored under key, whatever it is, and wakes those who watch it, even if there was nothing.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	delete(s.entries.rows, key)
	watches := s.watches[key]
	var queued []func()
	for _, waiter := range s.queues[key] {
		if t := s.turns[place{key, waiter}]; t != nil {
			queued = append(queued, t.wake)
		}
	}
	s.mu.Unlock()
	wake(watches)
	wakeAll(queued)
}

// Jump sets the store's clock forward by d, or back if d is negative, as an operator or a time server may do to the machine
// it is on: what is stored ends that much sooner or later than its ttl says. What has ended before does not come back.
func (s *Store) Jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.sweep(s.now())
	s.fences.sweep(s.now())
	s.ahead += d
}
