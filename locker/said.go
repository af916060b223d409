package locker

import (
	"sync"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// said is what a Client says to middleware of an Acquire, and the hooks that it collects: see [contract.Call].
type said struct {
	scoped bool

	mu        sync.Mutex // guards what follows
	contended bool
	attempts  int
	hooks     []contract.Begin // those of inner middleware first
}

func (s *said) Scoped() bool { return s.scoped }

func (s *said) Attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

func (s *said) Contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contended
}

func (s *said) OnHold(begin contract.Begin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, begin)
}
