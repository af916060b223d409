package fence

import (
	"errors"
	"fmt"
	"sync"
)

// Why a guard refuses. Repeating does not help: the holder has to stop, and to take the lock again.
var (
	// ErrLate: the resource has been claimed or written under a later grant of the lock.
	ErrLate = errors.New("fence is lower than one that was accepted before")

	// ErrUnnumbered: the fence is 0, as under strategies that do not number their grants.
	ErrUnnumbered = errors.New("fence is 0: the grant is not numbered")
)

// A Register is a value that accepts writes only in the order of their fences. A zero Register
// holds the zero value of T. Safe for concurrent use. It does not copy what T refers to: do not
// change that.
type Register[T any] struct {
	mu    sync.Mutex
	value T
	fence uint64
}

// Write stores value if fence is not lower than any that was accepted before. The error matches
// [ErrLate] or [ErrUnnumbered].
func (r *Register[T]) Write(fence uint64, value T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.accept(fence); err != nil {
		return err
	}
	r.value = value
	return nil
}

// Claim returns the value, on which the holder can base its next write. From then on every lower
// fence is refused, so only this holder or a later one can change the value. The error matches
// [ErrLate] or [ErrUnnumbered].
func (r *Register[T]) Claim(fence uint64) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.accept(fence); err != nil {
		var none T
		return none, err
	}
	return r.value, nil
}

// Read returns the value and the greatest fence that was accepted. It needs no lock.
func (r *Register[T]) Read() (value T, fence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.fence
}

func (r *Register[T]) accept(fence uint64) error {
	switch {
	case fence == 0:
		return ErrUnnumbered
	case fence < r.fence:
		return fmt.Errorf("fence %d came after %d: %w", fence, r.fence, ErrLate)
	}
	r.fence = fence
	return nil
}
