package memory

import "time"

// A table is a map of rows that may expire. An expired row stays until put overwrites or sweeps it,
// so every reader calls live.
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

// put stores r. Before the map grows past sweepAt, put drops all expired rows, and sets sweepAt to
// twice the number that is left. So a sweep of n rows comes after at least n/2 new keys: a constant
// cost per put. The map never holds more than minSweep rows, or twice the rows alive at the last
// sweep. The price is that a few puts take longer. With a goroutine or timer per row, something
// would have to stop it; a heap by expiry would cost every DeleteIf.
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

// minSweep keeps a small store from sweeping all the time.
const minSweep = 128
