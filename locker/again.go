package locker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const (
	maxAgain   = 8  // of one attempt
	maxRepeats = 64 // of all calls, until an attempt is answered
)

// repeats counts attempts that were repeated at once, since the store last answered one. A store
// that breaks all connections, with a hundred calls on them, does not get a hundred more at once.
type repeats struct{ unanswered atomic.Int32 }

func (r *repeats) take() bool { return r.unanswered.Add(1) <= maxRepeats }

func (r *repeats) answered(err error) {
	if (err == nil || errors.Is(err, ErrHeld)) && r.unanswered.Load() > 0 {
		r.unanswered.Store(0)
	}
}

// insist is an attempt to acquire, repeated at once while the error says that the connection had
// ended while it was idle: another connection gives the answer. Nothing is known of the attempt that
// failed, so the next one has another Token, and the strategy cleans up. A waiter keeps its name, and so its
// position in a queue: what was written to a connection that the server had closed does not arrive later.
func (w *waiting) insist(ctx, limit context.Context, req *contract.Request, so *effort) (err error) {
	for n := 0; ; n++ {
		failed := w.attempt(ctx, limit, req, so)
		w.repeats.answered(failed)
		if n > 0 && failed != nil && outcome.Unsent(failed) {
			return err // of this one nothing was sent, but of the one before
		}
		err = failed
		if !again(err) || n == maxAgain || !w.repeats.take() {
			return err
		}
		so.failed(err)
		req.Token = w.lines.holder.token()
	}
}

// again asks err for a method Again() bool.
func again(err error) bool {
	if err == nil || errors.Is(err, ErrHeld) { // an answer: errors.As takes long to look for a method
		return false
	}
	var a interface{ Again() bool }
	return errors.As(err, &a) && a.Again()
}
