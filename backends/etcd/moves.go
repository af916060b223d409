package etcd

import (
	"maps"
	"sync"
	"time"
)

// moves are the keys that a transaction without an answer may yet give a new lease. If it arrives after a
// later renewal of the old lease, the new one ends too early. So while a key is here, each renewal stores
// it again, with its lease. Then the transaction does nothing, since the revision of the key has changed.
//
// The holder of a key renews it within the longest TTL of the store. Some time later the move can do no
// harm any more: a renewal has stored the key again, or the lock was lost.
type moves struct {
	mu    sync.Mutex
	byKey map[string]*move // the last one of each key
	sweep int              // so many make the next one look for those that are of no use
}

// A move is from before a lease is granted until the key was stored.
type move struct {
	until time.Time // it is of no use then; zero: it is under way
}

func (m *move) useless() bool { return !m.until.IsZero() && time.Now().After(m.until) }

const (
	afterMove   = time.Minute
	sweepsMoves = 64
)

func (m *moves) begin(key string) *move {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKey == nil {
		m.byKey, m.sweep = map[string]*move{}, sweepsMoves
	}
	if len(m.byKey) >= m.sweep {
		maps.DeleteFunc(m.byKey, func(_ string, old *move) bool { return old.useless() })
		m.sweep = max(sweepsMoves, 2*len(m.byKey))
	}
	began := new(move)
	m.byKey[key] = began
	return began
}

// of returns the move of a key; nil: there is none.
func (m *moves) of(key string) *move {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.byKey[key]
	if found != nil && found.useless() {
		delete(m.byKey, key)
		return nil
	}
	return found
}

// end is told whether the key was stored after the move had begun. If so, neither that move nor an earlier
// one can do anything now. A later one can.
func (m *moves) end(key string, of *move, stored bool, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case of == nil:
	case !stored:
		of.until = time.Now().Add(longest + afterMove)
	case m.byKey[key] == of:
		delete(m.byKey, key)
	}
}
