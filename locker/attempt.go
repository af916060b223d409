package locker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
)

const (
	answerGrace  = 100 * time.Millisecond // for an attempt under way when the wait limit is reached
	abandonGrace = 50 * time.Millisecond  // for a Locker that follows its ctx and cleans up by itself
)

// attempt asks the store once. It returns as soon as ctx is done, whatever the Locker does: a grant that comes later
// is released by the goroutine that receives it. With a ctx that can't end it needs no goroutine.
func (w *waiting) attempt(ctx, limit context.Context, req Request) (Lease, error) {
	if ctx.Done() == nil && limit == nil {
		return w.Locker.Acquire(ctx, req) // the ctx has the ledger from Client.lock
	}
	a := &attempt{locker: w.Locker, cleanups: w.cleanups, req: req, done: make(chan struct{}), err: errNoAnswer}
	a.counted = countedContext{ctx, w.ledger}
	a.ctx = &a.counted
	if limit != nil {
		var cancel context.CancelFunc
		a.ctx, cancel = context.WithCancel(a.ctx)
		defer cancel()
	}
	go a.run()
	select {
	case <-a.done:
		return a.lease, a.result()
	case <-ctx.Done():
	case <-done(limit):
		grace := time.NewTimer(answerGrace)
		defer grace.Stop()
		select {
		case <-a.done:
		case <-ctx.Done():
		case <-grace.C:
		}
	}
	if a.leave() {
		return Lease{}, errUnderWay
	}
	return a.lease, a.result()
}

// attempt is a call of Acquire that its caller may leave behind.
type attempt struct {
	locker   Locker
	cleanups *cleanup.Queue
	counted  countedContext
	ctx      context.Context
	req      Request
	done     chan struct{}

	lease Lease
	err   error

	mu         sync.Mutex
	over, left bool
	impatience *time.Timer
}

// result is the error of an attempt that was answered. A Locker that follows its ctx may be as quick as we are to see its
// end, and does not tell its cause.
func (a *attempt) result() error {
	if err := a.ctx.Err(); err != nil && errors.Is(a.err, err) {
		return errUnderWay
	}
	return a.err
}

// errUnderWay is the result of an attempt that had no answer when the ctx or the wait ended.
var errUnderWay = errors.New("an attempt is under way")

func (a *attempt) run() {
	defer a.answered() // also if the Locker ends the goroutine
	stack.Grow()
	a.lease, a.err = a.locker.Acquire(a.ctx, a.req)
}

func (a *attempt) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	close(a.done)
	if !a.left {
		return
	}
	if first := a.impatience.Stop(); a.err == nil {
		a.remove(first)
	}
	a.counted.ledger.Done()
}

// leave makes whoever receives the answer responsible for it, unless it is there already.
func (a *attempt) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	// A Locker that follows its ctx cleans up by itself. Do not wait for one that does not: what it was asked for may
	// be granted already.
	a.counted.ledger.Begin()
	a.left, a.impatience = true, time.AfterFunc(abandonGrace, func() { a.remove(false) })
	return true
}

// remove releases a lease that is known to exist, or may exist or come to exist.
func (a *attempt) remove(known bool) {
	a.cleanups.Add(a.ctx, cleanup.Entry{TTL: a.req.TTL, Known: known, Remove: a.release})
}

// release ends a lease that nobody wants: Key and Token suffice to name it.
func (a *attempt) release(ctx context.Context) error {
	err := a.locker.Release(ctx, Lease{Key: a.req.Key, Token: a.req.Token, Owner: a.req.Owner})
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}
