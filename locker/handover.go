package locker

import (
	"context"
	"maps"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// WithMaxHandovers lets Unlock hand the lease over to the next waiter of the same Client, up to n times
// in a row, before it releases the lease for other Clients. A handover needs no round trip. The
// price: waiters of other Clients wait for up to n holds more.
//
// A lease is handed over only to a waiter that sleeps, and while more than half of the TTL that
// this waiter has asked for is left. While the next waiter has an attempt under way, Unlock
// releases the lease: the attempt may hang.
//
// Each holder has a Lock and a context of its own. Middleware of [WithMiddleware] sees two holds.
// The store sees one hold, since both have the same Token, and so does middleware of [Wrap]. A
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

// Release hands the lease over, or ends it.
func (w *waiting) Release(ctx context.Context, lease Lease) error {
	if w.handovers.limit > 0 && w.lines.handOver(lease, &w.handovers) {
		return nil
	}
	return w.Locker.Release(ctx, lease)
}

// Extend keeps the record of a lease for as long as the lease.
func (w *waiting) Extend(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	extended, err := w.Locker.Extend(ctx, lease, ttl)
	if err == nil && w.handovers.limit > 0 {
		w.lines.keepRecord(extended, &w.handovers)
	}
	return extended, err
}

// handovers records which hold has a lease now, and whether its release was sent. The Client or
// middleware may repeat a Release. It must not end a lease that was handed over, nor hand over a
// lease that may have ended. The zero value is ready to use.
type handovers struct {
	limit int // of one lease; set by New

	// guarded by the mutex of the lines
	byToken map[string]record
	sweepAt int // records at which those that have ended are deleted
}

// record is of a lease that was handed over, or whose release was sent.
type record struct {
	hand  int32     // handovers so far
	sent  bool      // the release
	until time.Time // when the record can be deleted
}

// handOver gives the lease to the head of the line, if that can take it. It also tells that another
// hold has the lease already. If it is false, the caller sends the release. Of two Releases at
// once, the second one finds the record of the first.
func (ls *lines) handOver(lease Lease, h *handovers) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := h.byToken[lease.Token]
	if lease.hand < r.hand {
		return true
	}
	if ln := ls.find(lease.Key, ""); !r.sent && h.allow(lease) && ln != nil && ln.canTake(lease) {
		lease.hand++
		lease.Granted, lease.hooks, lease.unlocked = time.Now(), nil, false
		h.note(lease, false)
		ln.handed = &lease
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

// canTake tells whether the line has a head that sleeps and for which the lease is long enough. A
// head with an attempt under way takes none: if the attempt hangs, the key would stay locked.
func (ln *line) canTake(lease Lease) bool {
	return ln.idle == nil && !ln.busy && ln.handed == nil && time.Until(lease.Expires) > ln.ttl/2
}

func (ls *lines) keepRecord(lease Lease, h *handovers) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if r, ok := h.byToken[lease.Token]; ok && lease.Expires.After(r.until) {
		r.until = lease.Expires
		h.byToken[lease.Token] = r
	}
}

func (h *handovers) note(lease Lease, sent bool) {
	if h.byToken == nil {
		h.byToken = map[string]record{}
	}
	if len(h.byToken) >= h.sweepAt {
		maps.DeleteFunc(h.byToken, func(_ string, r record) bool { return !time.Now().Before(r.until) })
		h.sweepAt = max(2*len(h.byToken), 128)
	}
	h.byToken[lease.Token] = record{hand: lease.hand, sent: sent, until: lease.Expires}
}

// takeHanded takes the lease that was handed over to the head. The mutex is held.
func (ln *line) takeHanded() (handed *Lease) {
	handed, ln.handed = ln.handed, nil
	return handed
}
