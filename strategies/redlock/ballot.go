package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
)

// ballot counts the answers of the nodes to one question.
type ballot struct {
	*quorum
	votes                           []Vote // by node
	answered, granted, lost, failed int
}

func (q *quorum) ballot() ballot {
	b := ballot{quorum: q, votes: make([]Vote, len(q.nodes))}
	for i := range b.votes {
		b.votes[i].Outcome = Pending
	}
	return b
}

// poll counts answers until the question is decided, or the limit or ctx ends. It is decided when a
// quorum has done as asked, or when so many nodes have lost the lease that no quorum is left.
func (q *quorum) poll(ctx context.Context, r *round, rest *leftovers, skipped ...*node) ballot {
	b := q.ballot()
	for _, n := range skipped {
		b.count(answer{node: n, err: errNothing})
	}
	for b.answered < len(q.nodes) && b.open() {
		if b.short(r) {
			r.askHeld(func(n *node) {
				if rest != nil {
					rest.miss(n)
				}
				b.count(answer{node: n, err: errSilent})
			})
			continue
		}
		a, ok := r.next(ctx)
		if !ok {
			b.silence(r)
			break
		}
		b.count(a)
	}
	return b
}

// open reports whether the silent nodes can still decide the question, one way or the other.
func (b *ballot) open() bool {
	silent := len(b.nodes) - b.answered
	decided := b.granted >= b.need || b.lost > b.spare()
	possible := b.granted+b.lost+silent >= b.need || b.lost+silent > b.spare()
	return !decided && possible
}

// short reports whether the quorum needs nodes that were held back.
func (b *ballot) short(r *round) bool {
	hope := b.granted + len(b.nodes) - b.answered - len(r.held)
	if r.kind == releasing {
		hope += b.lost
	}
	return len(r.held) > 0 && hope < b.need
}

// silence counts nodes without an answer as failed.
func (b *ballot) silence(r *round) {
	b.notAsked(r)
	b.giveUp(fmt.Errorf("%w within %v", errNoAnswer, r.limit), r.limit)
}

func (b *ballot) giveUp(why error, after time.Duration) {
	for i := range b.votes {
		if b.votes[i].Outcome == Pending {
			b.votes[i] = Vote{Outcome: Failed, Err: why, Latency: after}
		}
	}
}

// notAsked counts the nodes held back as failed.
func (b *ballot) notAsked(r *round) {
	for _, n := range r.held {
		*b.vote(n) = Vote{Outcome: Failed, Err: errSilent}
	}
}

func (b *ballot) vote(n *node) *Vote { return &b.votes[n.index] }

// errNothing is the vote of a node that never got the question for the lease.
var errNothing = fmt.Errorf("no attempt reached the node: %w", locker.ErrLost)

func (b *ballot) count(a answer) {
	b.answered++
	v := Vote{Outcome: Failed, Err: a.err, Latency: a.latency}
	switch {
	case a.err == nil:
		v.Outcome = Granted
		b.granted++
	case errors.Is(a.err, locker.ErrHeld):
		v.Outcome = Held
	case errors.Is(a.err, locker.ErrLost):
		v.Outcome = Lost
		b.lost++
	default:
		b.failed++
	}
	*b.vote(a.node) = v
}

// election counts the answers to Acquire. If grants are numbered, it also brings the nodes to one
// number: see NewFenced.
type election struct {
	ballot
	round  *round
	flight *flight
	fence  uint64 // of the lease, once a quorum has granted
	// Of the nodes that granted:
	first   []answer // of the first quorum
	landed  int      // have the number of the lease: these nodes make the quorum
	raising int      // are being asked to take the number
}

func (q *quorum) elect(r *round, f *flight) *election {
	return &election{ballot: q.ballot(), round: r, flight: f, first: make([]answer, 0, q.need)}
}

// hear counts answers until the election is decided, or the limit or ctx ends. Nodes that are still
// held back then are not asked.
func (e *election) hear(ctx context.Context) {
	defer func() {
		for _, n := range e.round.held {
			e.flight.answered(n, untouched)
		}
		e.notAsked(e.round)
	}()
	for !e.decided() {
		if held := len(e.round.held); held > 0 && e.hope()-held < e.need && e.hope() >= e.need {
			e.round.askHeld(func(n *node) {
				e.flight.answered(n, untouched)
				e.count(answer{node: n, err: errSilent})
			})
			continue
		}
		a, ok := e.round.next(ctx)
		if !ok {
			e.silence(e.round)
			return
		}
		if a.raise {
			e.raised(a)
			continue
		}
		e.count(a)
		if a.err == nil {
			e.number(a)
		}
	}
}

func (e *election) won() bool { return e.landed >= e.need }

// decided reports whether the quorum is complete, or impossible. If it is impossible, it must also
// be clear whether the cause is contention or an outage.
func (e *election) decided() bool {
	silent := len(e.nodes) - e.answered
	// After a failure the silent nodes decide between contention and an outage. A caller that wants
	// to wait for the lock must know which. Nodes held back count as failed: they are not asked
	// only for this.
	failed, silent := e.failed+len(e.round.held), silent-len(e.round.held)
	unclear := failed > 0 && failed <= e.spare() && failed+silent+e.raising > e.spare()
	return e.won() || e.hope() < e.need && !unclear
}

// hope returns how many nodes may have the number of the lease in the end.
func (e *election) hope() int {
	silent := len(e.nodes) - e.answered
	if e.granted < e.need { // the number of the lease is not known yet
		return e.granted + silent
	}
	return e.landed + e.raising + silent
}

// number is called for each node that granted. The greatest number of the first quorum becomes the
// number of the lease.
func (e *election) number(a answer) {
	if e.granted > e.need {
		e.land(a)
		return
	}
	e.fence = max(e.fence, a.fence)
	if e.first = append(e.first, a); e.granted == e.need {
		for _, a := range e.first {
			e.land(a)
		}
	}
}

// land counts a node that has the number of the lease, and raises a node that is behind. A node
// that is ahead has taken part in a later grant and does not count.
func (e *election) land(a answer) {
	v := e.vote(a.node)
	switch {
	case a.fence == e.fence:
		e.landed++
	case a.fence < e.fence:
		e.raising++
		v.Outcome = Pending
		e.round.again(answer{node: a.node, raise: true}, func(ctx context.Context, n *node, then reply) {
			stack.Go(func() (uint64, error) { return e.fence, n.raise(ctx, e.flight.lease(), e.fence) }, errGone, then)
		})
	default:
		v.Outcome, v.Err = Held, errOvertaken
	}
}

func (e *election) raised(a answer) {
	e.raising--
	v := e.vote(a.node)
	switch {
	case a.err == nil:
		e.landed++
		v.Outcome = Granted
	case errors.Is(a.err, errOvertaken):
		v.Outcome, v.Err = Held, a.err
	default:
		e.failed++
		v.Outcome, v.Err = Failed, a.err
	}
}
