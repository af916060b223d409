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
	abandonGrace = 50 * time.Millisecond  // for a Locker to follow its ctx and clean up by itself
)

// attempt asks the store once. It returns as soon as ctx is done, whatever the Locker does: the
// goroutine that receives a later grant releases it. With a ctx that can't end it needs no
// goroutine. A lease that has ended when it comes is an error, so that the wait can go on.
func (w *waiting) attempt(ctx, limit context.Context, req Request) (lease Lease, err error) {
	defer func() {
		if err == nil && lease.Ended() {
			err = w.tooLate(ctx, req, lease)
		}
	}()
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

// attempt is a call of Acquire that its caller may leave.
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

// result is the error of an attempt that was answered. A Locker that follows its ctx may see its
// end as soon as the caller does, and does not report the cause.
func (a *attempt) result() error {
	if err := a.ctx.Err(); err != nil && errors.Is(a.err, err) {
		return errUnderWay
	}
	return a.err
}

// errUnderWay is the error of an attempt that had no answer when the ctx or the wait ended.
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
		a.remove(first, true)
	}
	a.counted.ledger.Done()
}

// leave makes the goroutine that receives the answer responsible for it. It is false if the answer
// is there already.
func (a *attempt) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	// A Locker that follows its ctx cleans up by itself. Do not wait for one that does not: the
	// store may have granted the lease already.
	a.counted.ledger.Begin()
	a.left, a.impatience = true, time.AfterFunc(abandonGrace, func() { a.remove(false, false) })
	return true
}

// remove releases a lease that exists, or that may exist now or later. granted says that the store
// has just granted it.
func (a *attempt) remove(known, granted bool) {
	a.cleanups.Add(a.ctx, cleanup.Entry{TTL: a.req.TTL, Known: known, AtOnce: granted, Remove: a.release})
}

// release ends a lease that nobody wants. Key and Token suffice to name it.
func (a *attempt) release(ctx context.Context) error {
	err := a.locker.Release(ctx, Lease{Key: a.req.Key, Token: a.req.Token, Owner: a.req.Owner})
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}
