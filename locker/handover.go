package locker

import (
	"context"
	"maps"
	"sync"
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
	if w.handovers.limit > 0 {
		switch had, sent := w.handovers.look(lease); {
		case had: // someone else has it now
			return nil
		case !sent && w.lines.pass(lease, &w.handovers):
			return nil
		}
		w.handovers.send(lease)
	}
	return w.Locker.Release(ctx, lease)
}

// handovers remembers who has a lease now, and whether its end is on its way. A Release that is repeated, by the Client or by
// middleware, must neither end what was passed on nor pass on what may have ended. Ready to use when zero.
type handovers struct {
	limit int // of one lease

	mu      sync.Mutex
	byToken map[string]chain
	sweepAt int
}

// chain is a lease that has been passed on, or is about to end.
type chain struct {
	hand  int32 // of the one who has it
	sent  bool
	until time.Time // once sent, it is of no account from then on
}

// look tells whether the holder has passed the lease on, and whether anybody has sent its end.
func (h *handovers) look(lease Lease) (had, sent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.byToken[lease.Token]
	return lease.hand < c.hand, c.sent
}

// next makes the lease that of the next holder.
func (h *handovers) next(lease Lease) *Lease {
	lease.hand++
	lease.Granted, lease.hooks, lease.unlocked = time.Now(), nil, false
	h.note(lease, false)
	return &lease
}

// send notes that the end of the lease is on its way.
func (h *handovers) send(lease Lease) { h.note(lease, true) }

func (h *handovers) note(lease Lease, sent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byToken == nil {
		h.byToken = map[string]chain{}
	}
	if len(h.byToken) >= h.sweepAt {
		maps.DeleteFunc(h.byToken, func(_ string, c chain) bool { return c.sent && !time.Now().Before(c.until) })
		h.sweepAt = max(2*len(h.byToken), 128)
	}
	h.byToken[lease.Token] = chain{hand: lease.hand, sent: sent, until: lease.Expires}
}

// pass gives the lease to the head of the line, if there is one who can make use of it.
func (ls *lines) pass(lease Lease, h *handovers) bool {
	if !lease.unlocked || lease.Fence != 0 || lease.Owner != "" || int(lease.hand) >= h.limit || lease.Ended() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(lease.Key, "")
	if ln == nil || ln.idle != nil || ln.gift != nil || time.Until(lease.Expires) <= ln.ttl/2 {
		return false
	}
	ln.gift = h.next(lease)
	ln.stale++
	ln.wake()
	return true
}

// unwrap takes what was passed on to the head.
func (ln *line) unwrap() (gift *Lease) {
	gift, ln.gift = ln.gift, nil
	return gift
}
