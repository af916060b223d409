package locker

import (
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// effort is a call, what it has done so far, and what it has got.
type effort struct {
	scoped   bool
	from     string // the token of a ticket; empty: none
	wait     *waitPolicy
	got      grant            // if the last attempt was granted; its look at the clock is from before the attempt
	hooks    []contract.Begin // of middleware around the last attempt
	attempts int
	queued   bool      // behind another call of this Client
	held     bool      // the answer to an attempt
	unknown  bool      // the outcome of an attempt
	since    time.Time // when it began to sleep at the head of its line
	silent   int       // attempts that had no answer, since the store last answered
	fault    error     // of the line, when an attempt of its head had no answer
	left     []*attempt
}

// tooManyHang tells whether another attempt must wait until one that the call has left returns.
func (so *effort) tooManyHang() bool {
	so.left = slices.DeleteFunc(so.left, func(a *attempt) bool { return !a.hangs() })
	return len(so.left) >= maxHanging
}

func (so *effort) contended() bool { return so.queued || so.held }

// failed notes the error of an attempt after which the wait goes on.
func (so *effort) failed(err error) {
	held := errors.Is(err, ErrHeld)
	so.held = so.held || held
	so.unknown = so.unknown || isUnknown(err)
	if held {
		so.silent = 0
	}
}

// count notes the effort in a copy of err, since others may have err as well.
func (so *effort) count(err error) error {
	switch e := err.(type) { //nolint:errorlint // what is wrapped has a count of its own

	case *Error:
		counted := *e
		counted.Attempts, counted.Contended = so.attempts, so.contended() || errors.Is(e.Err, ErrHeld)
		if over, ours := e.Err.(*waitError); ours { //nolint:errorlint // only the one of this wait
			over.unknown = so.unknown && outcome.Unsent(over.fault)
			if over.held != nil {
				over.held.Attempts = so.attempts
			}
		}
		return &counted
	case *HeldError:
		counted := *e
		counted.Attempts = so.attempts
		return &counted
	}
	return err
}
