package locker

// WithAbandonedStop ends the renewal of a lock that is held in vain: its Lock, [Lock.Context] and
// every ctx that descends from that have become garbage, and nobody has called Unlock. The lease
// then runs out, no sooner than it would have if its holder had died, and the hold ends with a
// [LostError] whose reason is [LostAbandoned].
//
// By default such a lock is renewed for as long as the process lives, and middleware tells of it:
// see [Lease.Abandoned]. The garbage collector cannot know that a lock is of no use: the work may
// have kept nothing but the Done channel, or nothing at all. So this option is for programs whose
// work uses its Lock or a ctx below [Lock.Context] until it ends; work under [Client.Do] always
// does. When the collector finds out is not defined.
func WithAbandonedStop() Option { return func(c *config) { c.abandonedStop = true } }

// abandonment is what became of the Lock of a hold. The mutex of the hold guards it.
type abandonment struct {
	stops bool // the renewal then
	seen  bool // the Lock is garbage, and was not unlocked
	told  bool // by an Extend
}

// abandon is called by the runtime when the Lock and all contexts below it are garbage. The
// scheduler keeps the Lock until the first renewal, so that a lock that is held for a moment pays
// nothing for this.
func (h *hold) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil || h.unlock.begun {
		return
	}
	h.abandoned.seen = true
	h.extend = h.extend && !h.abandoned.stops
}

// tellAbandoned is true once, for an Extend that tells middleware.
func (h *hold) tellAbandoned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.abandoned.seen && !h.abandoned.told
	h.abandoned.told = h.abandoned.seen
	return first
}
