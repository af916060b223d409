package locker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// over is how a hold ended, and what becomes of its lease. The mutex of the hold guards it. cause, left,
// stopped and, after a loss, told are set once, at the same time. From then on the goroutine that has set them,
// and those that have waited for it, read them without the mutex.
//
// A Release is sent
//   - by Unlock, which takes the answer and repeats the call: see release.go. Before the minimum hold is
//     over, Unlock sends an Extend in its place, and the Release follows at the end of the minimum hold;
//   - never by an Unlock after a handover or a Transfer;
//   - after a loss in the background: at once, or at the end of what the key is kept for (see releaseAt),
//     or when Unlock comes.
type over struct {
	cause   error         // why the hold is over; nil while it lasts
	left    time.Duration // of the lease at that moment
	told    chan struct{} // closed when middleware knows of the loss; nil: it is not lost
	stopped bool          // the ctx given to Lock had ended before; that alone is no end of the hold

	moved  bool // somebody else has the lease now: the next waiter, or who resumes the ticket of a Transfer
	failed bool // the work, so the key is not kept for it
	kept   bool // a Release is sent later; the key is kept until then
	// the Extend to the end of minHold: the Release need not wait behind a cleanup that is not answered
	answered bool
	later    *time.Timer // sends the Release, unless takeBack has stopped it; nil: it was never planned for later
}

// facts are what decides when a Release is sent.
type facts struct {
	lost     LostReason // empty: the hold ends with Unlock
	unlocked bool       // Unlock has been called
	stopped  bool
	moved    bool
	failed   bool

	now   time.Time
	ends  time.Time // of the lease; zero: it is over
	least time.Time // the end of minHold; zero: there is none
}

// releaseAt is when a Release is to be sent; zero: never.
//
// After a loss by the maximum hold, or of a hold whose ctx given to Lock had ended before, the context of the
// holder has ended before the lease, and can't tell the holder of this loss. So the nodes that still have
// the lease keep it until Unlock: the work can stop before the next holder's begins. If Unlock has not
// come by the end of the lease, what is left is released: under some recipes it does not end by itself.
func (f facts) releaseAt() time.Time {
	kept := f.least.After(f.now) && !f.failed // the work may be done
	switch {
	case f.lost == "" && f.moved:
		return time.Time{}
	case f.lost == "" && kept:
		return f.least
	case f.lost == "":
		return f.now
	case !f.unlocked && !f.ends.IsZero() && (f.lost == LostMaxHold || f.stopped):
		return later(f.ends, f.least)
	case kept && f.lost != LostStolen && f.lost != LostEvicted: // the store may have the key
		return f.least
	}
	return f.now
}

// plan decides when a Release is sent, and sets the timer if that is later than now. The mutex is held.
func (h *hold) plan(now time.Time) (release time.Time) {
	f := facts{
		unlocked: h.unlock.begun, stopped: h.over.stopped, moved: h.over.moved, failed: h.over.failed,
		now: now, least: h.keyKept(),
	}
	if lost, ok := errors.AsType[*LostError](h.over.cause); ok {
		f.lost = lost.Reason
	}
	if !h.lease.ended(now) {
		f.ends = h.lease.Expires
	}
	release = f.releaseAt()
	if h.over.kept = release.After(now); h.over.kept {
		h.over.later = time.AfterFunc(release.Sub(now), h.releaseLeftover)
	}
	return release
}

// planUnlock is plan for the first Unlock.
func (h *hold) planUnlock(now time.Time) (release time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plan(now)
}

// isReleasedLater tells whether a Release was planned for later.
func (h *hold) isReleasedLater() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over.later != nil
}

// takeBack makes the caller the one that sends the Release, if it was to be sent later. There is one,
// since under some recipes it has no token.
func (h *hold) takeBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over.later != nil && h.over.later.Stop()
}

// releaseNow releases a lease that was kept after a loss until the work has stopped. The error of Unlock
// is the loss, whatever becomes of this. Unlock does not wait for it once the lease has ended.
func (h *hold) releaseNow() {
	now, ends := time.Now(), h.leaseNow().Expires
	if !now.Before(ends) {
		h.releaseLeftover()
		return
	}
	h.join()
	ctx, cancel := context.WithDeadline(&countedContext{context.WithoutCancel(h.given), &h.client.ledger}, earlier(now.Add(unlockLimit), ends))
	defer cancel()
	if err := cleanup.Repeat(ctx, h.releaseOnce); err != nil && !outcome.Permanent(err) {
		h.releaseLeftover()
	}
}

// releaseLeftover releases, in the background, a lease that is over by our clocks: the store may
// still have it. There may be a hundred thousand of them at once while the store is silent. If the
// queue of cleanups is full, the lease ends with its TTL.
func (h *hold) releaseLeftover() {
	tell := sync.OnceFunc(func() { h.client.lines.freed(h.lease.Key) })
	remove := func(ctx context.Context) error {
		defer tell() // what is left may end with its TTL
		return h.releaseOnce(ctx)
	}
	h.mu.Lock()
	answered := h.over.answered
	h.mu.Unlock()
	e := cleanup.Entry{TTL: h.asks(), Known: true, AtOnce: answered, Remove: remove, Done: h.client.ledger.Count()}
	if !h.client.cleanups.Add(&countedContext{h.given, &h.client.ledger}, e) {
		tell()
	}
}

func (h *hold) releaseOnce(ctx context.Context) error {
	h.mu.Lock()
	lease := h.lease.Lease
	if h.over.kept && h.minHold > 0 {
		ctx = calls.With(ctx, calls.Kept)
	}
	h.mu.Unlock()
	return releaseOnce(ctx, h.client.locker, lease)
}
