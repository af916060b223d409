package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
)

// ballot counts what the nodes say to one question.
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

// poll counts until it is decided, or the limit or ctx ends: by a quorum that did as it was asked, or by so many that have
// lost the lease that there is none.
func (q *quorum) poll(ctx context.Context, r *round, rest *leftovers, skipped ...int) ballot {
	b := q.ballot()
	for _, i := range skipped {
		b.count(answer{node: i, err: errNothing})
	}
	for b.answered < len(q.nodes) && (q.sequential || b.open()) {
		if b.short(r) {
			r.askHeld(func(a answer) {
				if rest != nil {
					rest.flight.miss(a.node)
					_ = rest.heard(a.node, a.err)
				}
				b.count(a)
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

// open: the silent nodes can still make a quorum of those that did it, or of those that have lost it.
func (b *ballot) open() bool {
	silent := len(b.nodes) - b.answered
	decided := b.granted >= b.need || b.lost > b.spare()
	possible := b.granted+b.lost+silent >= b.need || b.lost+silent > b.spare()
	return !decided && possible
}

// short tells whether the nodes that were asked can't make the quorum without those that were held back.
func (b *ballot) short(r *round) bool {
	hope := b.granted + len(b.nodes) - b.answered - len(r.held)
	if r.kind == releasing {
		hope += b.lost
	}
	return len(r.held) > 0 && hope < b.need
}

// silence takes no answer for a failure.
func (b *ballot) silence(r *round) {
	for _, i := range r.held {
		b.votes[i] = Vote{Outcome: Failed, Err: errSilent}
	}
	b.giveUp(fmt.Errorf("%w within %v", errNoAnswer, r.limit), r.limit)
}

func (b *ballot) giveUp(why error, after time.Duration) {
	for i := range b.votes {
		if b.votes[i].Outcome == Pending {
			b.votes[i] = Vote{Outcome: Failed, Err: why, Latency: after}
		}
	}
}

// errNothing is the vote of a node that was never asked for the lease.
var errNothing = fmt.Errorf("never asked for it: %w", locker.ErrLost)

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
	b.votes[a.node] = v
}

// election counts the answers to Acquire. Where grants are numbered, it also brings the nodes to one number: see NewFenced.
type election struct {
	ballot
	round  *round
	flight *flight
	fence  uint64 // of the lease, once a quorum has granted
	// Of the nodes that granted:
	numbers []uint64 // what each returned
	landed  int      // have the number of the lease: these make the quorum
	raising int      // are being asked to take it
}

func (q *quorum) elect(r *round, f *flight) *election {
	return &election{ballot: q.ballot(), round: r, flight: f, numbers: make([]uint64, len(q.nodes))}
}

// hear counts until it is decided, or the limit or ctx ends. Nodes that were held back until then
// are not asked.
func (e *election) hear(ctx context.Context) {
	defer func() {
		for _, i := range e.round.held {
			e.flight.answered(i, untouched)
			e.votes[i] = Vote{Outcome: Failed, Err: errSilent}
		}
	}()
	for !e.decided() {
		if held := len(e.round.held); held > 0 && e.hope()-held < e.need && e.hope() >= e.need {
			e.round.askHeld(func(a answer) {
				e.flight.answered(a.node, untouched)
				e.count(a)
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
			e.numbers[a.node] = a.fence
			e.number(a.node)
		}
	}
}

func (e *election) won() bool { return e.landed >= e.need }

// decided: the quorum has come together; or it can't any more, and it is clear whether that is contention or an outage.
func (e *election) decided() bool {
	silent := len(e.nodes) - e.answered
	if e.sequential && silent > 0 {
		return false
	}
	// Once a node has failed, those that are silent may yet make it an outage; who would wait for a
	// lock must know. Those that were held back are not asked for that.
	failed, silent := e.failed+len(e.round.held), silent-len(e.round.held)
	unclear := failed > 0 && failed <= e.spare() && failed+silent+e.raising > e.spare()
	return e.won() || e.hope() < e.need && !unclear
}

// hope is how many may have the number of the lease in the end.
func (e *election) hope() int {
	silent := len(e.nodes) - e.answered
	if e.granted < e.need { // what counts as landed is still open
		return e.granted + silent
	}
	return e.landed + e.raising + silent
}

// number is called for each node that granted. The number of the lease is the greatest of the first quorum.
func (e *election) number(i int) {
	switch {
	case e.granted < e.need:
	case e.granted > e.need:
		e.land(i)
	default:
		for j, v := range e.votes {
			if v.Outcome == Granted {
				e.fence = max(e.fence, e.numbers[j])
			}
		}
		for j := range e.votes {
			if e.votes[j].Outcome == Granted {
				e.land(j)
			}
		}
	}
}

// land counts a node whose number is that of the lease, and raises one that is behind. One that is ahead has taken part
// in something that came later, and does not count.
func (e *election) land(i int) {
	switch {
	case e.numbers[i] == e.fence:
		e.landed++
	case e.numbers[i] < e.fence:
		e.raising++
		e.votes[i].Outcome = Pending
		e.round.again(answer{node: i, raise: true}, func(ctx context.Context, i int, then reply) {
			stack.Go(func() (uint64, error) { return e.fence, e.nodes[i].raise(ctx, e.flight.lease(), e.fence) }, errGone, then)
		})
	default:
		e.votes[i].Outcome, e.votes[i].Err = Held, errOvertaken
	}
}

func (e *election) raised(a answer) {
	e.raising--
	switch {
	case a.err == nil:
		e.landed++
		e.votes[a.node].Outcome = Granted
	case errors.Is(a.err, errOvertaken):
		e.votes[a.node].Outcome, e.votes[a.node].Err = Held, a.err
	default:
		e.failed++
		e.votes[a.node].Outcome, e.votes[a.node].Err = Failed, a.err
	}
}
