package locker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/stack"
)

const (
	lateAfter    = time.Second            // others are sent beside a Release: its connection may be stuck
	releaseLimit = unlockLimit            // for one call: on a new connection it takes several round trips
	joinLimit    = 100 * time.Millisecond // for extensions to follow their ctx, which has ended
	tellLimit    = 100 * time.Millisecond // for middleware to report a loss: the program may end after Unlock
)

// Unlock releases the lock and returns when that is done, when ctx ends, or a second after it was
// called with a ctx that was done already. With a ctx that can't end, such as context.Background(),
// it returns after three seconds at most, or when the client library does if that ignores the
// deadline that it is given. The release then goes on by itself until the lease ends. So `defer
// l.Unlock(ctx)` is right whatever became of ctx.
//
// The error matches [ErrLost] if the lock was lost before. If the first request for the release had no
// answer and the next one finds the lock gone, the error is nil, since the first may have released it:
// a loss just before Unlock is not told then. Any other error means that the store did not say that the
// lock is released, and its text says when the lease ends by itself: a time of day in the local time
// zone, as in the lines of a log beside it. A second Unlock waits for the same release under its own
// ctx. A nil ctx is an error, and the lock is released all the same.
//
// Before the end of a minimum hold ([WithMinHold]), an Extend takes the place of the release, and
// the errors mean the same: the store did not confirm that the lock was held until now.
func (l *Lock) Unlock(ctx context.Context) error {
	defer runtime.KeepAlive(l)
	h, now := l.hold(), time.Now()
	if h.client == nil {
		return &Error{Op: "release", Err: errNoLock}
	}
	if ctx == nil {
		if err := l.Unlock(context.Background()); err != nil {
			return err
		}
		return &Error{Op: "release", Key: l.Key(), Err: errNilContext}
	}
	h.checkClock(now)
	if h.beginUnlock() {
		h.client.ledger.Begin() // until it is settled
		h.end(ErrReleased, now)
		if ctx.Done() == nil && h.client.inner.ends && h.client.hung.Load() == 0 {
			h.release()
		} else {
			go h.releaseAside()
		}
	}
	done := h.unlocked()
	if done == nil {
		return h.unlock.err
	}
	switch {
	case ctx.Done() == nil:
		return h.await(done, unlockLimit-time.Since(now), nil)
	case ctx.Err() != nil: // or it is the lock's own, which has just ended
		return h.await(done, doneGrace, ctxError(ctx))
	}
	select {
	case <-done:
		return h.unlock.err
	case <-ctx.Done():
		return h.unconfirmed(ctxError(ctx))
	}
}

// await waits for the result, but no longer than limit. Without a result, the error has the cause;
// nil: the last error of the store.
func (h *hold) await(done <-chan struct{}, limit time.Duration, cause error) error {
	if await(done, limit) {
		return h.unlock.err
	}
	return h.unconfirmed(cause)
}

const (
	unlockLimit = 3 * time.Second // for an Unlock with a ctx that can't end
	doneGrace   = time.Second     // for one with a ctx that is done already
)

// unlocking is the release of a hold. Every Unlock waits for it. The mutex of the hold guards it.
//
// Before the end of a minimum hold, what is sent, and sent again, is an Extend in place of a Release:
// see keep.
type unlocking struct {
	begun, over bool
	again       bool          // it goes on in the background
	sent        int32         // how many may have reached the store
	done        chan struct{} // closed when it is over; nil if nobody waits
	expiry      *time.Timer   // gives up the release in the background

	err error // the result when it is over
}

// beginUnlock tells whether this is the first Unlock.
func (h *hold) beginUnlock() (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = !h.unlock.begun
	h.unlock.begun = true
	return first
}

// unlocked returns a channel that is closed when the release is over; nil if it is over already.
func (h *hold) unlocked() (done <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unlock.over {
		return nil
	}
	if h.unlock.done == nil {
		h.unlock.done = make(chan struct{})
	}
	return h.unlock.done
}

// release is the work of the first Unlock: it waits for extensions under way, and sends what is due.
func (h *hold) release() {
	// lost: lossFollows releases what is left, unless that was planned for later
	if lost, ok := errors.AsType[*LostError](h.over.cause); ok {
		defer h.settle(lost) // also if the Locker ends the goroutine
		if h.takeBack() {
			if h.planUnlock(time.Now()); !h.over.kept {
				h.releaseNow()
			}
		}
		await(h.over.told, tellLimit)
		return
	}
	h.client.renewals.remove(h)
	h.join()
	h.handOver()
	now := time.Now()
	if h.planUnlock(now).IsZero() {
		h.settle(nil)
		return
	}
	h.firstRelease(now)
}

// firstRelease sends Release under a deadline of its own. If that fails or takes long, the release
// goes on in the background.
func (h *hold) firstRelease(now time.Time) {
	w, left := h.client.inner, h.leaseNow().Expires.Sub(now)
	var ctx context.Context
	var own *deadlineContext // nil: the ctx is shared, and ends by itself
	if w.ends && left >= releaseLimit {
		ctx = w.releases.at(now, releaseLimit, w.ledger).with(h.given)
	} else {
		own = &deadlineContext{countedContext: countedContext{h.given, w.ledger}, deadline: now.Add(min(releaseLimit, left))}
		ctx = own
	}
	late := h.whenLate(min(lateAfter, left), own)
	returned := false
	defer func() {
		if late.timer.Stop() {
			late.hold, late.ctx = nil, nil
			w.late.Put(late)
		} else {
			h.client.hung.Add(-1)
		}
		if own != nil {
			own.end(context.Canceled) // for goroutines of the Locker that wait for its end
		}
		if !returned { // the Locker panics or ends the goroutine
			h.settle(errNoAnswer)
		}
	}()
	err := h.sendLast(ctx)
	returned = true
	if err != nil {
		h.resend()
	}
}

// lateRelease is a timer for a first Release. One that was stopped is used again, which saves three
// allocations.
type lateRelease struct {
	timer *time.Timer
	hold  *hold
	ctx   *deadlineContext
}

func (h *hold) whenLate(d time.Duration, ctx *deadlineContext) *lateRelease {
	l, used := h.client.inner.late.Get().(*lateRelease)
	if !used {
		l = &lateRelease{}
	}
	if l.hold, l.ctx = h, ctx; used {
		l.timer.Reset(d)
	} else {
		l.timer = time.AfterFunc(d, l.over)
	}
	return l
}

// over is called when the first Release takes long. Only then a second timer ends a ctx of its own.
func (l *lateRelease) over() {
	h, ctx := l.hold, l.ctx
	h.client.hung.Add(1)
	if ctx != nil {
		time.AfterFunc(time.Until(ctx.deadline), func() { ctx.end(context.DeadlineExceeded) })
	}
	h.resend()
}

// releaseAside is release on a goroutine of its own, which Unlock may leave.
func (h *hold) releaseAside() {
	stack.Grow()
	h.release()
}

// join waits until no extension is under way, but not for long. Their ctx has ended; if one hangs
// in its client library in spite of that, waiting would keep the key locked. An extension can't
// revive a lease that Release has ended, and a late one moves no end of a minimum hold.
func (h *hold) join() {
	if joined := h.extensions.joined; joined != nil {
		await(joined, joinLimit)
	}
}

func await(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// resend repeats Release in the background until one is answered, within the life of the lease. It
// may run while the first one hangs.
func (h *hold) resend() {
	h.mu.Lock()
	begin := !h.unlock.again && !h.unlock.over
	h.unlock.again = true
	left := time.Until(h.lease.Expires)
	if h.over.kept {
		left = min(left, time.Until(h.keyKept()))
	}
	// After the end of the lease the result is of no use. A Release that ends with the lease has a
	// moment more to return.
	if begin {
		h.unlock.expiry = time.AfterFunc(left+joinLimit, func() { h.client.renewals.follow(h) })
	}
	h.mu.Unlock()
	// Drain counts it already, so the entry has no Done.
	if begin && !h.client.cleanups.Add(&countedContext{h.given, &h.client.ledger}, cleanup.Entry{TTL: left, Known: true, Remove: h.sendLast}) {
		h.client.renewals.follow(h)
	}
}

// giveUpRelease ends a release that had no answer until the lease ended. It cleans up as after a
// loss: under some recipes, what the store has does not end by itself.
func (h *hold) giveUpRelease() {
	h.mu.Lock()
	err := h.extensions.failed
	h.mu.Unlock()
	if err == nil {
		err = errNoAnswer
	}
	if h.settle(err) && !h.over.kept { // Drain does not wait for it: the lease has ended
		h.client.cleanups.Add(h.given, cleanup.Entry{TTL: h.asks(), Known: true, Remove: h.releaseOnce})
	}
}

// sendLast sends the last call of a hold once: Release or, before the end of a minimum hold, an Extend. An
// answer is the result of Unlock; without one, it returns the error.
func (h *hold) sendLast(ctx context.Context) (again error) {
	h.mu.Lock()
	if h.unlock.over {
		h.mu.Unlock()
		return nil
	}
	h.unlock.sent++
	lease := h.lease.Lease
	h.mu.Unlock()

	var err error
	if h.over.kept {
		err = h.keep(ctx, lease)
	} else {
		err = h.client.locker.Release(ctx, lease)
	}
	lost := errors.Is(err, ErrLost) // an answer, whatever cause it has
	if err == nil || !lost && outcome.Permanent(err) {
		h.settle(err)
		return nil
	}
	h.mu.Lock()
	if !lost && outcome.Unsent(err) {
		h.unlock.sent--
	}
	sent := h.unlock.sent
	if !lost {
		// that a later one was not sent says nothing of the first
		if h.extensions.failed == nil || !outcome.Unsent(err) {
			h.extensions.failed = err
		}
		h.mu.Unlock()
		return err
	}
	h.mu.Unlock()
	if sent > 1 && !h.over.kept { // an earlier one, whose answer got lost, has released the lease
		err = nil
	}
	h.settle(err)
	return nil
}

// settle takes the first result. It tells middleware, the head of the line, and every Unlock that
// waits.
func (h *hold) settle(err error) (first bool) {
	h.mu.Lock()
	if h.unlock.over {
		h.mu.Unlock()
		return false
	}
	if err != nil && !errors.Is(err, ErrLost) {
		err = h.unconfirmedBecause(err)
	}
	h.unlock.over = true
	h.unlock.err = wrap("release", h.lease.Key, err)
	unlocked := errors.Is(h.over.cause, ErrReleased)
	done := h.unlock.done
	if h.unlock.expiry != nil {
		h.unlock.expiry.Stop()
	}
	h.mu.Unlock()

	if done != nil {
		defer close(done) // also if a hook panics
	}
	// Before the hooks: one of them may call Drain.
	h.client.ledger.Done()
	if !h.over.kept && !h.over.moved || errors.Is(err, ErrLost) {
		h.client.lines.freed(h.lease.Key)
	}
	if unlocked {
		cause := ErrReleased
		switch {
		case errors.Is(err, ErrLost):
			cause = err
		case err != nil:
			cause = fmt.Errorf("%w: %w", ErrReleased, h.unlock.err)
		}
		h.tell(cause)
	}
	return true
}
