package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/relied"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// MaxMinHold is the longest minimum hold.
const MaxMinHold = relied.Longest

// WithMinHold keeps the key locked until d after the grant, although the work is done sooner. So
// work that several processes start at about the same time runs once. d must be longer than the
// processes are apart, and shorter than the period of the work. It is in whole milliseconds, at
// least [contract.MinTTL] and at most [MaxMinHold].
//
// Unlock ends the hold, and its context, at once. Before d is over, it does not send Release. It
// sends one Extend for the rest of d, which confirms that the lock was held to the end of the work;
// without an answer it repeats that, as it does a Release. The Client sends Release when d is over,
// if the process lives. If not, the lease ends by itself: when d is over, or within a TTL of
// Unlock, whichever is later. [Client.Do] releases the lock at once if the work returned an error,
// panicked or called runtime.Goexit. Then another process can do the work.
//
// The request for the lease, and each renewal, asks for the longer of the TTL and the rest of d. So
// the store keeps the key for d by its own clock, which may run up to 1 % fast. It does so even if
// Unlock can't reach it, or if the process dies: nobody knows then whether the work was done.
//
// The holder relies on the TTL only, and its lease ends and is renewed as without a minimum hold
// ([contract.Lease.Expires]). So d may be longer than the longest TTL of the store (see WithMaxTTL of the
// store's package), and does not make quarantine longer. A server that forgets the key ends the
// minimum hold.
//
// If the lock is lost, the key stays locked until d is over if the store still has it, since the work
// may be done. It does not after work of [Client.Do] that has failed. A lock with a minimum hold is
// not handed over, and takes no lease that another hold hands over (see [WithMaxHandovers]).
// [Client.Drain] does not wait for d. Under package reentrant, the owner can take the lock again before
// d is over.
func WithMinHold(d time.Duration) Option {
	return func(c *config) {
		switch {
		case d < contract.MinTTL:
			c.refuse(outcome.Invalidf("minimum hold %v is under the limit of %v", d, contract.MinTTL))
		case d > MaxMinHold:
			c.refuse(outcome.Invalidf("minimum hold %v is over the limit of %v", d, MaxMinHold))
		case d%time.Millisecond != 0:
			c.refuse(outcome.Invalidf("minimum hold %v is not in whole milliseconds", d))
		}
		c.minHold, c.wait.fresh = d, true
	}
}

// relying is ctx for the request: it tells the store that the holder relies on the TTL alone.
func (c *config) relying(ctx context.Context) context.Context {
	if c.minHold <= c.ttl {
		return ctx
	}
	return relied.With(ctx, c.ttl)
}

// keyKept is until when the minimum hold keeps the key; zero: there is none.
func (h *hold) keyKept() time.Time {
	if h.minHold == 0 {
		return time.Time{}
	}
	return h.lease.Granted.Add(h.minHold)
}

// workFailed makes Unlock release the lock at once.
func (h *hold) workFailed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over.failed = true
}

// extendKeeping extends lease to ttl from now, and lets the key live for the rest of the minimum hold
// if that is longer.
func (h *hold) extendKeeping(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if h.minHold == 0 {
		return h.client.locker.Extend(ctx, lease, ttl)
	}
	began := time.Now()
	rest := restOf(h.keyKept().Sub(began))
	if rest <= ttl {
		return h.client.locker.Extend(ctx, lease, ttl)
	}
	extended, err := h.client.locker.Extend(relied.With(ctx, ttl), lease, rest)
	extended.Expires = earlier(extended.Expires, later(lease.Expires, contract.Until(began, ttl)))
	return extended, err
}

// keep sends an Extend to the end of the minimum hold. The hold is over: nobody relies on it.
func (h *hold) keep(ctx context.Context, lease contract.Lease) error {
	until := h.keyKept()
	left := time.Until(until)
	if left <= 0 {
		return errNoAnswer // the Release is under way
	}
	// The lease may end before an answer comes. The key does not.
	lease.Expires = later(lease.Expires, contract.Until(lease.Granted, h.minHold))
	_, err := h.client.locker.Extend(calls.With(relied.With(ctx, 0), calls.Kept), lease, max(restOf(left), contract.MinTTL))
	switch {
	case errors.Is(err, ErrLost) && !time.Now().Before(until):
		return errNoAnswer // the Release at the end of the minimum hold may have come first
	case errors.Is(err, ErrLost) && h.takeBack():
		h.releaseLeftover() // as after any loss
	case err == nil:
		h.mu.Lock()
		h.over.answered = true
		h.mu.Unlock()
	}
	return err
}

// restOf is d in whole milliseconds, no shorter.
func restOf(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
