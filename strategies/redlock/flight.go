package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// flight is an attempt that some nodes have not answered yet. A grant that arrives after the
// attempt has failed, or after its lease was released, is released at once.
type flight struct {
	*quorum
	ctx   context.Context
	from  string // the token of the hold to take over; empty: of none
	req   contract.Request
	other *flight      // the attempt before this one with the same token: this is a retransmission
	room  atomic.Int32 // of the lease: -1 once a node has granted it that has room for any number of others

	mu       sync.Mutex
	parts    []part // by node
	phase    phase
	spent    bool        // so is the token of the hold to take over: no other attempt may take it over
	doubtful bool        // a Transfer ends with an unknown outcome
	forget   *time.Timer // set once all have answered, if the attempt must still be remembered
	until    time.Time   // when that timer fires
}

// phase is how far an attempt is. Phases come in this order; some are left out.
type phase byte

const (
	undecided phase = iota
	leased          // the release of the lease cleans up
	unwanted        // the token is spent: a grant that arrives now is unwanted
	released        // the same, but a release waits for the missing answers and cleans up
)

// errUnwanted is the vote of a node whose grant came too late to be wanted.
var errUnwanted = errors.New("granted after the attempt was over")

// errCounts is the vote of a node that grants several leases at once, up to a limit. With 5 nodes
// and 2 permits there are 10 permits of nodes, enough for 3 quorums of 3.
const errCounts = backends.Invalid("a quorum can't count permits: the node is a semaphore; use single, or the readers or writers of rwlock")

// acquire asks one node.
func (f *flight) acquire(ctx context.Context, n *node, then reply) {
	if err := f.reserve(n); err != nil {
		f.answered(n, untouched)
		then(0, err)
		return
	}
	haunted := n.server.Haunted(f.req.Key) // looked up before the attempt: the cleanup may be answered first
	n.acquire(ctx, f.from, f.req, func(lease contract.Lease, err error) {
		if errors.Is(err, locker.ErrHeld) && (haunted || n.server.Haunted(f.req.Key)) {
			n.again(ctx, f.from, f.req, func(lease contract.Lease, err error) { then(f.hear(n, lease, err)) })
			return
		}
		then(f.hear(n, lease, err))
	})
}

// reserve takes a slot for the cleanup that the answer may need. After an error nothing is sent.
func (f *flight) reserve(n *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !n.server.TryReserve() {
		return &cleanup.FullError{}
	}
	f.part(n).slot = true
	return nil
}

// hear receives the answer of one node to the attempt, and returns the vote of the node.
func (f *flight) hear(n *node, lease contract.Lease, err error) (fence uint64, _ error) {
	f.mu.Lock()
	f.part(n).late = cleanup.LateOf(err)
	f.mu.Unlock()
	if !f.answered(n, responseOf(err)) {
		err = errUnwanted
	}
	switch {
	case err != nil:
	case lease.Room < 0:
		f.room.Store(-1)
	case lease.Holds+lease.Room > 1:
		err = errCounts
	}
	if n.raise == nil {
		lease.Fence = 0 // nodes without raise do not agree on a number
	}
	return lease.Fence, err
}

// answered notes an answer, and lets the releases go on that wait for it. It returns false for a
// grant that is not wanted any more and that no release waits for.
func (f *flight) answered(n *node, said response) (wanted bool) {
	f.mu.Lock()
	p := f.part(n)
	p.said = said
	if f.spent {
		f.disown(p)
	} else {
		f.spendUsedUp()
	}
	late := f.phase == unwanted || f.phase == released && p.missed // nobody else cleans up
	switch {
	case said == unknown && late && !calls.IsNode(f.ctx):
		p.clean(f.ctx, f.entry(n, false))
	case said == unknown && f.phase == undecided: // conclude or abandon decides on the cleanup
	default:
		p.free()
	}
	if wanted = !late || said != granted; !wanted {
		p.server.Add(f.ctx, f.entry(n, true))
	}
	waiting := p.waiting
	p.waiting = nil
	last := f.last()
	f.mu.Unlock()
	if last {
		f.flying.land(f)
	}
	for _, release := range waiting {
		release(said)
	}
	return wanted
}

// last reports whether this was the last answer, and the attempt can be forgotten.
func (f *flight) last() bool {
	switch {
	case f.any(silent):
		return false
	case f.phase < unwanted && (f.any(unknown) || f.any(untouched)):
		// The attempt is still needed. A release must know which nodes have nothing to release; an
		// extension must know which nodes may clean up by themselves.
		f.until = time.Now().Add(f.req.TTL)
		f.forget = time.AfterFunc(f.req.TTL, func() { f.flying.land(f) })
		return false
	}
	return true
}

func (f *flight) prolong(ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until := time.Now().Add(ttl); f.forget != nil && until.After(f.until) && f.forget.Stop() {
		f.forget.Reset(ttl)
		f.until = until
	}
}

// conclude notes whether the attempt won a lease. With a lease, the release of the lease cleans up
// the nodes. It returns false if the lease was released already.
func (f *flight) conclude(won bool) (kept bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if won {
		f.phase = max(f.phase, leased)
	}
	for i := range f.parts {
		if p := &f.parts[i]; p.said == unknown && f.phase != undecided {
			p.free()
		}
	}
	return f.phase <= leased
}

// win notes that a quorum has granted the attempt.
func (f *flight) win() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spend()
}

// doubt notes that no quorum has granted the attempt. If more nodes than the quorum can do without have
// said that they have no such hold, it may be another Transfer's.
func (f *flight) doubt(votes []Vote) {
	if f.from == "" || errors.Is(f.noQuorum("acquire", f.req.Key, votes), locker.ErrHeld) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubtful = true
	f.spendUsedUp()
}

// spendUsedUp spends the hold that a Transfer with an unknown outcome takes over, once no other Transfer can
// make a quorum of the nodes that this one has not touched. A silent node may not have been touched.
func (f *flight) spendUsedUp() {
	left := 0
	for i := range f.parts {
		if said := f.parts[i].said; said == untouched || said == silent {
			left++
		}
	}
	if f.doubtful && left < f.need {
		f.spend()
	}
}

// spend notes that the hold which a Transfer takes over has moved, or is of no use. Nobody else releases it
// then, so the nodes that have not moved it are cleaned up.
func (f *flight) spend() {
	f.spent = true
	for i := range f.parts {
		p := &f.parts[i]
		f.disown(p)
		if f.from != "" && p.said == silent { // it may be disowned when it answers
			done := contract.DelayDrain(f.ctx)
			p.waiting = append(p.waiting, func(response) { done() })
		}
	}
}

// disown removes the hold that a Transfer has taken over from a node that has not moved it.
func (f *flight) disown(p *part) {
	if f.from == "" {
		return
	}
	old := func() cleanup.Entry {
		return p.cleanup(f.ctx, contract.Lease{Key: f.req.Key, Token: f.from}, max(f.req.TTL, untilGone), false)
	}
	switch p.said {
	case held: // it is not there; the attempt that took it may still be on its way
		p.server.Confirm(f.ctx, old())
	case untouched, unknown:
		p.server.Add(f.ctx, old())
	}
}

// end makes later grants unwanted. If a release is about to be sent to all nodes, the release waits
// for the missing answers. end reports whether none are missing.
func (f *flight) end(releasing bool) (all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase = max(f.phase, unwanted); releasing {
		f.phase = released
	}
	if f.forget != nil {
		f.forget.Stop()
	}
	return !f.any(silent)
}

// awaitLimit is how long a release waits for the answer to the attempt, or half the node limit: at the
// end of the limit nobody is left to send the release.
const awaitLimit = 100 * time.Millisecond

// await calls then once the node has answered the attempt, so that one release is enough for both.
// It does not wait longer than awaitLimit. Without an attempt the node may have the lease.
func (f *flight) await(n *node, then func(response)) {
	if f == nil {
		then(granted)
		return
	}
	f.mu.Lock()
	p := f.part(n)
	if said := p.said; said != silent {
		f.mu.Unlock()
		then(said)
		return
	}
	defer f.mu.Unlock()
	patience := time.AfterFunc(min(awaitLimit, f.limit/2), func() { then(f.miss(n)) })
	p.waiting = append(p.waiting, func(said response) {
		if patience.Stop() {
			then(said)
		}
	})
}

// miss is called when no release waits for the node any more: an answer that arrives from now on
// may come after all of them. It returns the answer so far.
func (f *flight) miss(n *node) response {
	if f == nil {
		return granted
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.part(n)
	p.missed = true
	return p.said
}

// abandon releases on all nodes that may have granted. It waits for the nodes that have, up to the
// limit, so that the next attempt finds them free.
func (f *flight) abandon() {
	f.flying.end(f.req.Token, f)
	r := f.begin(f.ctx, min(f.limit, f.req.TTL), abandoning)
	defer r.end()
	rest := f.leftovers(f.ctx, f.lease(), f, f.req.TTL)
	defer rest.release(r)
	release := func(ctx context.Context, n *node, then reply) {
		f.await(n, func(said response) {
			if said == held || said == untouched {
				then(0, rest.heard(n, nil))
			} else {
				rest.ask(ctx, n, said, then)
			}
		})
	}
	var awaited []*node
	for _, n := range f.nodes {
		switch f.said(n) {
		case granted:
			awaited = append(awaited, n)
			r.again(answer{node: n}, release)
		case silent:
			r.again(answer{node: n}, release)
		case unknown:
			f.clean(n)
			_ = rest.heard(n, nil)
		default:
			_ = rest.heard(n, nil)
		}
	}
	for len(awaited) > 0 {
		a, ok := r.next(f.ctx)
		if !ok {
			return
		}
		awaited = slices.DeleteFunc(awaited, func(n *node) bool { return n == a.node })
	}
}

// clean begins the cleanup of a node whose answer is unknown.
func (f *flight) clean(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.part(n).clean(f.ctx, f.entry(n, false))
}

// entry is the cleanup of one node after the attempt.
func (f *flight) entry(n *node, known bool) cleanup.Entry {
	e := n.cleanup(f.ctx, f.lease(), f.req.TTL, known)
	e.Late = f.part(n).late
	return e
}

// late is done when what the attempt has sent to a node can't arrive any more; nil: nobody knows.
func (f *flight) late(n *node) context.Context {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.part(n).late
}

// lease returns the lease by which a release names the attempt.
func (f *flight) lease() contract.Lease {
	return contract.Lease{Key: f.req.Key, Token: f.req.Token, Owner: f.req.Owner}
}

// said returns the answer of a node so far.
func (f *flight) said(n *node) response {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.part(n).said
}

// all reports whether the answers of the node to this attempt and those before it are so.
func (f *flight) all(n *node, so func(response) bool) bool {
	return f == nil || so(f.said(n)) && f.other.all(n, so)
}

// any reports whether a node has given this answer.
func (f *flight) any(said response) bool {
	return slices.ContainsFunc(f.parts, func(p part) bool { return p.said == said })
}

func (f *flight) part(n *node) *part { return &f.parts[n.index] }
