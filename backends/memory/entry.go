package memory

import "time"

type entry struct {
	value   string
	expires time.Time // zero: never
	other   bool      // stands for a value of another type
}

// left is 0 for an entry that never expires.
func (e entry) left(now time.Time) time.Duration {
	if e.expires.IsZero() {
		return 0
	}
	return e.expires.Sub(now)
}

// live returns the entry under key unless it has expired. It does not remove one that has: put will overwrite it or
// sweep it, and until then every reader comes through here.
func (s *Store) live(key string, now time.Time) (entry, bool) {
	e, found := s.entries[key]
	return e, found && !e.expired(now)
}

func (e entry) expired(now time.Time) bool {
	return !e.expires.IsZero() && !now.Before(e.expires)
}

// put stores e, and before the map grows past sweepAt drops all that has expired. The mark is then set to twice what is
// left, so that a sweep of n entries comes after at least n/2 new keys, which is a constant cost per put, and the map
// never holds more than minSweep entries or twice those alive at the last sweep. The price is that one put in many
// takes longer. A goroutine or a timer per entry would have to be stopped by someone; a heap by expiry costs
// every DeleteIf.
func (s *Store) put(key string, e entry, now time.Time) {
	if len(s.entries) >= s.sweepAt {
		for k, old := range s.entries {
			if old.expired(now) {
				delete(s.entries, k)
			}
		}
		s.sweepAt = max(minSweep, 2*len(s.entries))
	}
	s.entries[key] = e
}

// minSweep spares a small store from sweeping all the time.
const minSweep = 128
