package locker

import "weak"

// WithoutAbandonedRenewal ends the renewal of an abandoned lock: its Lock, [Lock.Context] and every ctx
// that descends from that have become garbage, and nobody has called Unlock. The lease then runs
// out, no sooner than if its holder had died. The hold ends with a [LostError] whose reason is
// [LostAbandoned].
//
// By default the Client renews such a lock for as long as the process lives, and middleware reports
// it: see [contract.Call.Abandoned]. The garbage collector cannot know that nobody needs a lock: the work
// may have kept only the Done channel, or nothing. So use this option only if the work uses its
// Lock or a ctx below [Lock.Context] until it ends; work under [Client.Do] always does. When the
// collector finds an abandoned lock is not defined.
func WithoutAbandonedRenewal() Option { return func(c *config) { c.abandonedStop = true } }

// abandonment is whether a hold was abandoned. A lock that a program has forgotten is reported, and is
// not kept in silence. The mutex of the hold guards it.
type abandonment struct {
	seen bool // the Lock is garbage, and was not unlocked
	told bool // an Extend has reported it
}

// abandoned is called by the runtime when the Lock and all contexts below it are garbage. See
// hold.renew, which asks for that at the first renewal. A hold that is garbage as well is over, since
// the scheduler has all others.
func abandoned(of weak.Pointer[hold]) {
	h := of.Value()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.cause != nil || h.unlock.begun {
		return
	}
	h.extensions.abandoned.seen = true
}

// tellAbandoned is true once, for the Extend that reports it to middleware.
func (h *hold) tellAbandoned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &h.extensions.abandoned
	first := a.seen && !a.told
	a.told = a.seen
	return first
}

// isRenewed tells whether the Client renews the lease by itself. The mutex is held.
func (h *hold) isRenewed() bool {
	return h.renewed && !(h.extensions.abandoned.seen && h.abandonedStop)
}
