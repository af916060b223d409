package locker

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
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
func (h *hold) handOver() bool {
	if h.client.lines.maxHandovers == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.least != nil || h.moved || h.lease.Fence != 0 || h.lease.Owner != "" {
		h.client.lines.notHandedOver(h.lease.Token)
		return false
	}
	h.moved = h.client.lines.handOver(h.lease)
	return h.moved
}

// Release sends nothing if the lease was handed over and its last holder has not ended its hold: so
// this Release is of a holder before, and middleware repeats it.
func (w *waiting) Release(ctx context.Context, lease contract.Lease) error {
	if w.lines.wasHandedOver(lease.Token) {
		return nil
	}
	return w.Locker.Release(ctx, lease)
}

// handOver gives the lease to the head of its line, if that can take it and the lease was handed over
// less often than it may be. Otherwise the lease ends here, and is forgotten.
func (ls *lines) handOver(lease grant) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n, ln := ls.handovers[lease.Token], ls.find(lease.Key, "")
	if n >= ls.maxHandovers || ln == nil || !ln.canTake(lease) {
		delete(ls.handovers, lease.Token)
		return false
	}
	if ls.handovers == nil {
		ls.handovers = map[string]int{}
	}
	ls.handovers[lease.Token] = n + 1
	lease.Granted = time.Now()
	ln.handed = &lease
	ln.wake()
	return true
}

// notHandedOver is for a lease that ends: a Release of it is sent.
func (ls *lines) notHandedOver(token string) {
	if ls.maxHandovers == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.handovers, token)
}

func (ls *lines) wasHandedOver(token string) bool {
	if ls.maxHandovers == 0 {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.handovers[token] > 0
}

// canTake tells whether the line has a head that sleeps and for which the lease is long enough. A
// head with an attempt under way takes none: if the attempt hangs, the key would stay locked.
func (ln *line) canTake(lease grant) bool {
	return ln.idle == nil && !ln.busy && ln.handed == nil && time.Until(lease.Expires) > ln.ttl/2
}

// takeHanded takes the lease that was handed over to the head. The mutex is held.
func (ln *line) takeHanded() (handed *grant) {
	handed, ln.handed = ln.handed, nil
	return handed
}
