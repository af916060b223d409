package cleanup

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	maxSlots = 10_000 // attempts under way and entries
	// slots in use at which Add drops: the rest is for attempts
	maxLeftovers = maxSlots * 3 / 4
)

// slots bounds the number of attempts under way and of entries. Attempts wait here in the order in
// which they came: for a slot, or for the gate.
type slots struct {
	used    atomic.Int32
	dropped atomic.Int64 // leftovers that found none
	waiting atomic.Int32 // the number of waiters, for wake

	mu      sync.Mutex
	waiters []chan struct{}
}

// take takes a slot, unless most of them are in use.
func (s *slots) take(most int32) bool {
	for {
		n := s.used.Load()
		if n >= most {
			return false
		}
		if s.used.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *slots) takeForLeftover() bool {
	ok := s.take(maxLeftovers)
	if !ok {
		s.dropped.Add(1)
	}
	return ok
}

// free gives back a slot.
func (s *slots) free() {
	s.used.Add(-1)
	s.wake(1)
}

// join makes an attempt wait for its turn, which closes the channel. The attempt then looks at the
// gate and the slots before it sleeps, since its turn may have been before.
func (s *slots) join() (turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(1)
	turn = make(chan struct{})
	s.waiters = append(s.waiters, turn)
	return turn
}

// leave ends the wait of an attempt that does not need its turn, or has none. If its turn has come
// meanwhile, it is that of the next one.
func (s *slots) leave(turn chan struct{}) {
	if turn == nil {
		return
	}
	s.mu.Lock()
	i := slices.Index(s.waiters, turn)
	if i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
		s.waiting.Add(-1)
	}
	s.mu.Unlock()
	if i < 0 {
		s.wake(1)
	}
}

// everyone is a number of waiters to wake even if no slot is free: the gate may refuse them.
const everyone = math.MaxInt

// wake wakes the first n waiters, while a slot is free.
func (s *slots) wake(n int) {
	if n == 0 || s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < n && len(s.waiters) > 0 && (n == everyone || s.used.Load() < maxSlots); i++ {
		close(s.waiters[0])
		s.waiters = s.waiters[1:]
		s.waiting.Add(-1)
	}
}

// FullError says that an attempt was not sent, since too many calls wait for an answer of its
// server.
type FullError struct{ Err error }

func (e *FullError) Error() string {
	text := "not sent: too many attempts and cleanups wait for an answer of the server"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *FullError) Unwrap() error { return e.Err }

// Unsent says that nothing was sent.
func (e *FullError) Unsent() bool { return true }

// ErrorType is "cleanup_full".
func (e *FullError) ErrorType() string { return "cleanup_full" }
