package locker

import (
	"context"
	"maps"
	"time"
)

// WithHandover lets Unlock pass the lease on to the next waiter of the same Client, up to n times in a row, before it is released
// for others: a waiter who is next door gets the lock without a round trip, which is many times faster, and those of other Clients wait for up
// to n holds more. It is for [New] alone.
//
// A lease is passed on while more than half of the TTL that the next one has asked for is left. Each holder has a Lock and a
// context of his own; they have the Token in common, so that the store sees one hold. Leases that are numbered are not passed on, since
// each holder needs a number of his own, nor are those with an owner.
//
// This is lock cohorting (D. Dice, V. Marathe, N. Shavit: Lock Cohorting, 2012).
func WithHandover(n int) Option {
	return func(c *config) {
		switch {
		case c.perCall:
			c.refuse(invalidf("WithHandover is for New, not for one call"))
		case n < 1:
			c.refuse(invalidf("%d handovers: at least one is needed", n))
		}
		c.handover = n
	}
}

// Release passes the lease on, or ends it.
func (w *waiting) Release(ctx context.Context, lease Lease) error {
	if w.handovers.limit > 0 && w.lines.pass(lease, &w.handovers) {
		return nil
	}
	return w.Locker.Release(ctx, lease)
}

// handovers remembers who has a lease now, and whether its end is on its way. A Release that is repeated, by the Client or by
// middleware, must neither end what was passed on nor pass on what may have ended. Ready to use when zero.
type handovers struct {
	limit int // of one lease

	// guarded by the mutex of the lines
	byToken map[string]chain
	sweepAt int
}

// chain is a lease that has been passed on, or is about to end.
type chain struct {
	hand  int32 // of the one who has it
	sent  bool
	until time.Time // once sent, it is of no account from then on
}

// pass tells whether somebody else has the lease: its holder has passed it on before, or the head of the line can make use of
// it. Otherwise its end is about to be sent. Of two Releases at once, the one that comes second finds what the first has done.
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

// allow tells whether the lease may be passed on.
func (h *handovers) allow(lease Lease) bool {
	return lease.unlocked && lease.Fence == 0 && lease.Owner == "" && int(lease.hand) < h.limit && !lease.Ended()
}

// takes tells whether there is a head who can make use of it.
func (ln *line) takes(lease Lease) bool {
	return ln.idle == nil && ln.gift == nil && time.Until(lease.Expires) > ln.ttl/2
}

func (h *handovers) note(lease Lease, sent bool) {
	if h.byToken == nil {
		h.byToken = map[string]chain{}
	}
	if len(h.byToken) >= h.sweepAt {
		maps.DeleteFunc(h.byToken, func(_ string, c chain) bool { return c.sent && !time.Now().Before(c.until) })
		h.sweepAt = max(2*len(h.byToken), 128)
	}
	h.byToken[lease.Token] = chain{hand: lease.hand, sent: sent, until: lease.Expires}
}

// unwrap takes what was passed on to the head.
func (ln *line) unwrap() (gift *Lease) {
	gift, ln.gift = ln.gift, nil
	return gift
}
