package locker

import "sync"

// ending is the part of a ctx that ends by hand. Its channel is made when somebody asks for it.
type ending struct {
	mu   sync.Mutex
	done chan struct{}
	err  error
}

// Done and Err are those of [context.Context].
func (e *ending) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// end is called with the mutex held. Only the first counts.
func (e *ending) end(err error) (first bool) {
	if e.err != nil {
		return false
	}
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	return true
}
