package memory

import "time"

// A table is a map of rows that may expire. It does not remove one that has: put will overwrite it or sweep it, and
// until then every reader comes through live.
type table[R row] struct {
	rows    map[string]R
	sweepAt int // number of rows at which put looks for expired ones
}

type row interface{ expired(now time.Time) bool }

func newTable[R row]() table[R] {
	return table[R]{rows: make(map[string]R), sweepAt: minSweep}
}

// live returns the row under key, or the zero row if there is none or it has expired.
func (t *table[R]) live(key string, now time.Time) (r R, found bool) {
	if r, found = t.rows[key]; found && r.expired(now) {
		return *new(R), false
	}
	return r, found
}

// put stores r, and before the map grows past sweepAt drops all that has expired. The mark is then set to twice what is
// left, so that a sweep of n rows comes after at least n/2 new keys, which is a constant cost per put, and the map
// never holds more than minSweep rows or twice those alive at the last sweep. The price is that one put in many
// takes longer. A goroutine or a timer per row would have to be stopped by someone; a heap by expiry costs
// every DeleteIf.
func (t *table[R]) put(key string, r R, now time.Time) {
	if len(t.rows) >= t.sweepAt {
		t.sweep(now)
		t.sweepAt = max(minSweep, 2*len(t.rows))
	}
	t.rows[key] = r
}

func (t *table[R]) sweep(now time.Time) {
	for k, r := range t.rows {
		if r.expired(now) {
			delete(t.rows, k)
		}
	}
}

// minSweep spares a small store from sweeping all the time.
const minSweep = 128
