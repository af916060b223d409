package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// flight is an attempt that some nodes have not answered yet. A grant that arrives after the
// attempt has failed, or after its lease was released, is released at once.
type flight struct {
	*quorum
	ctx  context.Context
	from string // the token of the hold to take over; empty: of none
	req  locker.Request

	mu      sync.Mutex
	out     int         // nodes that have not answered
	said    []response  // by node
	due     []bool      // by node: a release will be sent once it has answered
	slots   []bool      // by node: its answer was unknown, and the slot for a cleanup is reserved
	awaited []*awaited  // releases that wait for an answer
	won     bool        // the lease is granted
	over    bool        // a grant that arrives now is unwanted
	shared  bool        // a node that has granted it has room for any number of others
	forget  *time.Timer // set once all have answered, if the attempt must still be remembered
	until   time.Time   // when that timer fires
	other   *flight     // the attempt before this one with the same token: this is a retransmission
}

type response byte

const (
	silent    response = iota
	held               // by someone else
	untouched          // nothing was sent, or the error is permanent
	unknown            // an error: the node may have the token, now or later
	granted
)

// errUnwanted is the vote of a node whose grant came too late to be wanted.
var errUnwanted = errors.New("granted after the attempt was over")

// shares notes that a node has room for any number of leases beside this one.
func (f *flight) shares() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared = true
}

// room is the Room of the lease: that of its nodes.
func (f *flight) room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shared {
		return -1
	}
	return 0
}

// errCounts is the vote of a node that grants several leases at once, up to a limit. With 5 nodes
// and 2 permits there are 10 permits of nodes, enough for 3 quorums of 3.
const errCounts = backends.Invalid("a quorum can't count permits: the node is a semaphore; use single, or the readers or writers of rwlock")

// acquire asks one node.
func (f *flight) acquire(ctx context.Context, i int, then reply) {
	server := f.nodes[i].server
	switch {
	case f.sequential && !f.keep(): // the attempt or its lease is over
		f.answered(i, untouched)
		then(0, errUnwanted)
		return
	case !server.TryReserve():
		f.answered(i, untouched)
		then(0, &cleanup.FullError{})
		return
	}
	haunted := server.Haunted(f.req.Key) // looked up before the attempt: the cleanup may be answered first
	f.nodes[i].acquire(ctx, f.from, f.req, func(lease locker.Lease, err error) {
		if errors.Is(err, locker.ErrHeld) && (haunted || server.Haunted(f.req.Key)) {
			f.nodes[i].again(ctx, f.from, f.req, func(lease locker.Lease, err error) { then(f.hear(i, lease, err)) })
			return
		}
		then(f.hear(i, lease, err))
	})
}

// hear receives the answer of one node to the attempt, and returns the vote of the node.
func (f *flight) hear(i int, lease locker.Lease, err error) (fence uint64, _ error) {
	server := f.nodes[i].server
	said := granted
	switch inner, nested := errors.AsType[*QuorumError](err); {
	case nested && !inner.Unsent(): // some of its nodes may have the token: the node leaves them to this quorum
		said = unknown
	case errors.Is(err, locker.ErrHeld):
		said = held
	case backends.Permanent(err) || backends.Unsent(err):
		said = untouched
	case err != nil:
		said = unknown
	}
	unwanted, unresolved := f.answered(i, said)
	switch {
	case unresolved:
		server.Keep(f.ctx, f.entry(i, false))
	case said != unknown:
		server.Free()
	}
	if unwanted {
		server.Add(f.ctx, f.entry(i, true))
		err = errUnwanted
	}
	switch {
	case err != nil:
	case lease.Room < 0:
		f.shares()
	case lease.Holds+lease.Room > 1:
		err = errCounts
	}
	if f.nodes[i].raise == nil {
		lease.Fence = 0 // nodes without raise do not agree on a number
	}
	return lease.Fence, err
}

// entry is the cleanup of one node after the attempt.
func (f *flight) entry(i int, known bool) cleanup.Entry {
	return f.cleanup(i, f.lease(), f.req.TTL, known)
}

// answered notes an answer. unwanted reports a grant that is not wanted any more and that no
// release waits for. unresolved reports the same for an answer that may be a grant.
func (f *flight) answered(i int, said response) (unwanted, unresolved bool) {
	f.mu.Lock()
	f.said[i] = said
	f.out--
	last := f.out == 0
	if last && !f.over && (slices.Contains(f.said, unknown) || slices.Contains(f.said, untouched)) {
		// The attempt is still needed. A release must know which nodes have nothing to release; an
		// extension must know which nodes may clean up by themselves.
		last, f.forget = false, time.AfterFunc(f.req.TTL, func() { f.flying.land(f) })
		f.until = time.Now().Add(f.req.TTL)
	}
	late := f.over && (f.due == nil || !f.due[i])
	unwanted, unresolved = late && said == granted, late && said == unknown
	if said == unknown && !unresolved {
		if f.won || f.over {
			f.nodes[i].server.Free()
		} else {
			f.slots[i] = true // until conclude or abandon decides on the cleanup
		}
	}
	var follow []*awaited
	f.awaited = slices.DeleteFunc(f.awaited, func(a *awaited) bool {
		if a.node == i {
			follow, f.due[i] = append(follow, a), false
		}
		return a.node == i
	})
	f.mu.Unlock()
	if last {
		f.flying.land(f)
	}
	for _, a := range follow {
		a.patience.Stop()
		a.then(said)
	}
	return unwanted, unresolved
}

// heard returns the answers so far.
func (f *flight) heard() []response {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.said)
}

// untouched returns the nodes whose response is untouched.
func (f *flight) untouched() (nodes []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, said := range f.said {
		if said == untouched {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// await calls then once the node has answered the attempt, so that one release is enough for both.
// It does not wait longer than awaitLimit.
func (f *flight) await(i int, then func(response)) {
	f.mu.Lock()
	if said := f.said[i]; said != silent {
		f.mu.Unlock()
		then(said)
		return
	}
	defer f.mu.Unlock()
	a := &awaited{node: i, then: then}
	a.patience = time.AfterFunc(min(awaitLimit, f.limit/2), func() { f.awaitNoMore(a) })
	f.awaited = append(f.awaited, a)
}

// awaited is a release that waits for the answer of a node.
type awaited struct {
	node     int
	then     func(response)
	patience *time.Timer
}

func (f *flight) awaitNoMore(a *awaited) {
	f.mu.Lock()
	i := slices.Index(f.awaited, a)
	if i < 0 {
		f.mu.Unlock()
		return
	}
	f.awaited = slices.Delete(f.awaited, i, i+1)
	f.due[a.node] = false // an answer that arrives now has missed the release
	f.mu.Unlock()
	a.then(silent)
}

// miss notes that no release is sent to the node. Its cleanup follows, and an answer that arrives
// now may miss the cleanup.
func (f *flight) miss(i int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due != nil {
		f.due[i] = false
	}
}

const awaitLimit = 100 * time.Millisecond // or half the node limit: at the end of the limit nobody is left to send the release

// keep reports whether later answers may count for the lease. It is false once the lease was
// released.
func (f *flight) keep() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over
}

// conclude notes whether the attempt won a lease. With a lease, the release of the lease cleans up
// the nodes. It returns false if the lease was released already.
func (f *flight) conclude(won bool) (kept bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.won = won && !f.over; f.won || f.over {
		for i := range f.slots {
			f.free(i)
		}
	}
	return !f.over
}

// free frees the slot for a cleanup.
func (f *flight) free(i int) {
	if f.slots[i] {
		f.slots[i] = false
		f.nodes[i].server.Free()
	}
}

// end makes later grants unwanted. If a release is about to be sent to all nodes, the release waits
// for the missing answers. end reports whether none are missing.
func (f *flight) end(releasing bool) (all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.forget != nil {
		f.forget.Stop()
	}
	if !releasing || f.out == 0 || f.due != nil {
		return f.out == 0
	}
	f.due = make([]bool, len(f.said))
	for i := range f.due {
		f.due[i] = f.said[i] == silent
	}
	return false
}

// abandon releases on all nodes that may have granted. It waits for the nodes that have, up to the
// limit, so that the next attempt finds them free.
func (f *flight) abandon() {
	lease := f.lease()
	f.flying.abandon(f)
	r := f.begin(f.ctx, min(f.limit, f.req.TTL), abandoning)
	defer r.end()
	rest := f.leftovers(f.ctx, lease, f, f.req.TTL)
	defer rest.release(r)
	release := func(ctx context.Context, i int, then reply) {
		f.await(i, func(said response) {
			if said == held || said == untouched {
				then(0, rest.heard(i, nil))
				return
			}
			rest.may(i, said)
			f.nodes[i].release(ctx, lease, func(err error) { then(0, rest.heard(i, err)) })
		})
	}
	said, waited := f.heard(), 0
	for i := range said {
		switch said[i] {
		case silent, granted:
			r.again(answer{node: i}, release)
		case unknown:
			f.mu.Lock()
			kept := f.slots[i]
			f.slots[i] = false
			f.mu.Unlock()
			if kept {
				f.nodes[i].server.Keep(f.ctx, f.entry(i, false))
			} else {
				f.nodes[i].server.Add(f.ctx, f.entry(i, false))
			}
			fallthrough
		default:
			_ = rest.heard(i, nil)
		}
		if said[i] == granted {
			waited++
		}
	}
	for waited > 0 {
		a, ok := r.next(f.ctx)
		if !ok {
			return
		}
		if said[a.node] == granted {
			waited--
		}
	}
}

// lease returns the lease by which a release names the attempt.
func (f *flight) lease() locker.Lease {
	return locker.Lease{Key: f.req.Key, Token: f.req.Token, Owner: f.req.Owner}
}

// flights finds attempts by their token, for the release of their lease.
type flights struct {
	mu      sync.Mutex
	byToken map[string]*flight
}

func (fs *flights) start(ctx context.Context, q *quorum, from string, req locker.Request) *flight {
	f := &flight{quorum: q, ctx: ctx, from: from, req: req, out: len(q.nodes), said: make([]response, len(q.nodes)), slots: make([]bool, len(q.nodes))}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.byToken == nil {
		fs.byToken = map[string]*flight{}
	}
	f.other = fs.byToken[req.Token]
	fs.byToken[req.Token] = f
	return f
}

// counts reports whether node i will keep the token. A node that has not answered, or has failed,
// may still clean it up.
func (fs *flights) counts(token string, i int) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := fs.byToken[token]; f != nil; f = f.other {
		if said := f.heard()[i]; said == silent || said == unknown {
			return false
		}
	}
	return true
}

// prolong keeps the attempts of a token for as long as its extended lease.
func (fs *flights) prolong(token string, ttl time.Duration) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := fs.byToken[token]; f != nil; f = f.other {
		f.mu.Lock()
		if until := time.Now().Add(ttl); f.forget != nil && until.After(f.until) && f.forget.Stop() {
			f.forget.Reset(ttl)
			f.until = until
		}
		f.mu.Unlock()
	}
}

// land forgets f.
func (fs *flights) land(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.remove(f)
}

func (fs *flights) remove(f *flight) {
	before := fs.byToken[f.req.Token]
	if before == f {
		if f.other == nil {
			delete(fs.byToken, f.req.Token)
		} else {
			fs.byToken[f.req.Token] = f.other
		}
		return
	}
	for before != nil && before.other != f {
		before = before.other
	}
	if before != nil {
		before.other = f.other
	}
}

// abandon ends all attempts with the token of f, since the token is spent.
func (fs *flights) abandon(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.end(true) {
		fs.remove(f)
	}
	for other := fs.byToken[f.req.Token]; other != nil; other = other.other {
		if other != f && other.end(false) {
			fs.remove(other)
		}
	}
}

// end is called before the lease of token is released. It returns the latest attempt, which may
// still wait for answers, or nil. It also returns the nodes that can't have the lease.
func (fs *flights) end(token string) (first *flight, unasked []int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	first = fs.byToken[token]
	for f := first; f != nil; f = f.other {
		untouched := f.untouched()
		if f == first {
			unasked = untouched
		} else {
			unasked = slices.DeleteFunc(unasked, func(i int) bool { return !slices.Contains(untouched, i) })
		}
		if f.end(f == first) {
			fs.remove(f)
		}
	}
	return first, unasked
}
