package locker

import (
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// WithMaxHandovers lets Unlock hand the lease over to the next waiter of the same Client, up to n times
// in a row, before it releases the lease for other Clients. A handover needs no round trip. The
// price: waiters of other Clients wait for up to n holds more.
//
// A lease is handed over only to a waiter that sleeps. What is left of the lease must be more than half of
// the TTL that this waiter has asked for, and no more than that TTL. While the next waiter has an attempt
// under way, Unlock releases the lease: the attempt may hang.
//
// Each holder has a Lock and a context of its own. Middleware of [WithMiddleware] sees two holds.
// The store sees one hold, since both have the same Token, and so does middleware of [contract.Wrap]. A
// numbered lease is not handed over, since each holder needs a number of its own; nor is a lease
// that has an owner or a minimum hold ([WithMinHold]).
//
// This is lock cohorting (D. Dice, V. Marathe, N. Shavit: Lock Cohorting, 2012).
func WithMaxHandovers(n int) ClientOption {
	return clientOption(func(c *config) {
		if n < 1 {
			c.refuse(outcome.Invalidf("%d handovers: at least one is needed", n))
		}
		c.handover = n
	})
}

// handOver gives the lease of a hold that Unlock has ended to the next waiter, if it may have it. Then
// this hold sends nothing more.
func (h *hold) handOver() {
	if h.client.handovers.most == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.minHold > 0 || h.over.moved || errors.Is(h.extensions.failed, ErrLost) {
		h.client.handovers.forget(h.lease.Token)
		return
	}
	h.over.moved = h.client.handovers.give(h.lease)
}

// handovers are the leases of a Client that went from one hold to the next without a Release. Unlock
// asks it whether the next waiter may have a lease.
type handovers struct {
	most  int    // of one lease, see WithMaxHandovers; 0: none. Set by New, as lines is
	lines *lines // of the waiters

	mu    sync.Mutex
	given map[string]int // how often each lease was handed over whose last holder has not ended its hold, by its Token
}

// give hands the lease over to the head of its line, if that can take it and the lease was handed
// over less often than it may be. Otherwise the lease ends here.
func (hs *handovers) give(lease grant) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	n := hs.given[lease.Token]
	lease.Granted = time.Now()
	if lease.Fence != 0 || lease.Owner != "" || n >= hs.most || !hs.lines.offer(&lease) {
		delete(hs.given, lease.Token)
		return false
	}
	if hs.given == nil {
		hs.given = map[string]int{}
	}
	hs.given[lease.Token] = n + 1
	return true
}

// forget is for a lease that ends: a Release of it is sent.
func (hs *handovers) forget(token string) {
	if hs.most == 0 {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.given, token)
}

// has tells whether a hold has handed the lease over to one that lasts.
func (hs *handovers) has(token string) bool {
	if hs.most == 0 {
		return false
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.given[token] > 0
}

// suits tells whether a call that asks for ttl takes the lease. It may have been offered to the head before
// that call, and a little of it has gone since.
func (g *grant) suits(ttl time.Duration) bool {
	now := time.Now()
	return !g.ended(now) && fits(g.Expires.Sub(now)+ttl/16, ttl+ttl/16)
}
