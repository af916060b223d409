package locker

import (
	"context"
	"maps"
	"time"
)

// WithHandover lets Unlock hand the lease over to the next waiter of the same Client, up to n times
// in a row, before it is released for other Clients. A handover needs no round trip, so it is many
// times faster. The price: waiters of other Clients wait for up to n holds more. It is for [New]
// alone.
//
// A lease is handed over only to a waiter that sleeps, and while more than half of the TTL that
// this waiter has asked for is left. While the next waiter has an attempt under way, Unlock
// releases the lease: the attempt may hang.
//
// Each holder has a Lock and a context of its own. Middleware of [WithMiddleware] sees two holds.
// The store sees one hold, since both have the same Token, and so does middleware of [Wrap]. A
// numbered lease is not handed over, since each holder needs a number of its own; nor is a lease
// that has an owner.
//
// This is lock cohorting (D. Dice, V. Marathe, N. Shavit: Lock Cohorting, 2012).
func WithHandover(n int) Option {
	return func(c *config) {
		switch {
		case c.perCall:
			c.refuse(invalidf("locker.WithHandover is for locker.New, not for one call"))
		case n < 1:
			c.refuse(invalidf("%d handovers: at least one is needed", n))
		}
		c.handover = n
	}
}

// Release hands the lease over, or ends it.
func (w *waiting) Release(ctx context.Context, lease Lease) error {
	if w.handovers.limit > 0 && w.lines.pass(lease, &w.handovers) {
		return nil
	}
	return w.Locker.Release(ctx, lease)
}

// Extend keeps what is known of a lease that was handed over for as long as the lease.
func (w *waiting) Extend(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	extended, err := w.Locker.Extend(ctx, lease, ttl)
	if err == nil && w.handovers.limit > 0 {
		w.lines.prolong(extended, &w.handovers)
	}
	return extended, err
}

// handovers remembers which hold has a lease now, and whether its release was sent. The Client or
// middleware may repeat a Release. It must not end a lease that was handed over, nor hand over a
// lease that may have ended. Ready to use when zero.
type handovers struct {
	limit int // handovers of one lease

	// guarded by the mutex of the lines
	byToken map[string]chain
	sweepAt int
}

// chain is a lease that was handed over, or whose release was sent.
type chain struct {
	hand  int32     // handovers so far
	sent  bool      // its release
	until time.Time // the entry is needed until then
}

// pass tells whether another hold has the lease: it was handed over before, or the head of the line
// takes it now. If not, the caller sends the release. Of two Releases at once, the second one finds
// what the first one did.
func (ls *lines) pass(lease Lease, h *handovers) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	c := h.byToken[lease.Token]
	if lease.hand < c.hand {
		return true
	}
	if ln := ls.find(lease.Key, ""); !c.sent && h.allow(lease) && ln != nil && ln.takes(lease) {
		lease.hand++
		lease.Granted, lease.hooks, lease.unlocked = time.Now(), nil, false
		h.note(lease, false)
		ln.gift = &lease
		ln.stale++
		ln.wake()
		return true
	}
	h.note(lease, true)
	return false
}

// allow tells whether the lease may be handed over.
func (h *handovers) allow(lease Lease) bool {
	return lease.unlocked && lease.Fence == 0 && lease.Owner == "" && int(lease.hand) < h.limit && !lease.Ended()
}

// takes tells whether the line has a head that sleeps and can use the lease. A head that has an
// attempt under way takes none: the attempt may hang, and the key would stay locked for as long.
func (ln *line) takes(lease Lease) bool {
	return ln.idle == nil && !ln.asking && ln.gift == nil && time.Until(lease.Expires) > ln.ttl/2
}

func (ls *lines) prolong(lease Lease, h *handovers) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if c, ok := h.byToken[lease.Token]; ok && lease.Expires.After(c.until) {
		c.until = lease.Expires
		h.byToken[lease.Token] = c
	}
}

func (h *handovers) note(lease Lease, sent bool) {
	if h.byToken == nil {
		h.byToken = map[string]chain{}
	}
	if len(h.byToken) >= h.sweepAt {
		maps.DeleteFunc(h.byToken, func(_ string, c chain) bool { return !time.Now().Before(c.until) })
		h.sweepAt = max(2*len(h.byToken), 128)
	}
	h.byToken[lease.Token] = chain{hand: lease.hand, sent: sent, until: lease.Expires}
}

// unwrap takes the lease that was handed to the head.
func (ln *line) unwrap() (gift *Lease) {
	gift, ln.gift = ln.gift, nil
	return gift
}
