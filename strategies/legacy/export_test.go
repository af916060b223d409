package legacy

import "time"

// WithClock gives a GetSet its own wall clock, for tests with clocks that differ.
func WithClock(now func() time.Time) GetSetOption { return func(g *getSet) { g.now = now } }

// Remembers returns how many grants l keeps in memory.
func Remembers(l any) int {
	switch l := l.(type) {
	case *getSet:
		return l.grants.count()
	case *bit:
		return l.grants.count()
	}
	return 0
}

func (gs *grants[G]) count() int {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return len(gs.of)
}

// Sent returns how many stamps l counts as its own, for all its grants.
func Sent(l any) (n int) {
	g := l.(*getSet)
	g.grants.mu.Lock()
	defer g.grants.mu.Unlock()
	for _, s := range g.grants.of {
		n += len(s.sent)
	}
	return n
}

// TakeSlots takes all slots of an Expire until free is called.
func TakeSlots(l any) (free func()) {
	q, n := l.(*expire).cleanups, 0
	for q.TryReserve() {
		n++
	}
	return func() {
		for range n {
			q.Free()
		}
	}
}

// Slots returns how many slots of an Expire are in use.
func Slots(l any) int { return l.(*expire).cleanups.Stats().Slots }
