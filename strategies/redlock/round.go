package redlock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// round sends one question to the nodes and receives their answers, until its limit. The calls go
// on after the caller has returned: they use the values of its ctx, not its end.
type round struct {
	*quorum
	kind    kind
	limit   time.Duration // for each node
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer
	users   atomic.Int32 // calls under way, plus the caller

	question question
	held     []*node // nodes held back: not asked as long as the others can make the quorum
}

// kind is what a round is for.
type kind byte

const (
	acquiring kind = iota
	extending
	releasing
	abandoning // the release after a failed attempt: always on all nodes at once
)

// question asks one node. It does not wait: then is called once with the answer.
type question func(ctx context.Context, n *node, then reply)

// reply receives an answer; fence is 0 if the answer has no number.
type reply func(fence uint64, err error)

// answer is the answer of one node.
type answer struct {
	node    *node
	raise   bool // it answers a raise
	fence   uint64
	err     error
	latency time.Duration // since the round began
}

// asking is a node that may be asked, with the call that its server let through.
type asking struct {
	node *node
	call cleanup.Call
}

// begin starts a round for one question or several.
func (q *quorum) begin(ctx context.Context, limit time.Duration, k kind) *round {
	r := &round{quorum: q, kind: k, limit: limit, began: time.Now(), answers: make(chan answer, 2*len(q.nodes))}
	if k == extending {
		ctx = context.WithoutCancel(ctx) // its nodes look for the cause of a loss
	} else {
		ctx = calls.ForNode(ctx)
	}
	r.ctx, r.cancel = context.WithTimeout(ctx, limit)
	r.users.Store(1)
	q.rounds.Add(1)
	return r
}

// leave cancels the ctx of the calls after the last of them, instead of at the limit.
func (r *round) leave() {
	if r.users.Add(-1) == 0 {
		r.cancel()
	}
}

// end is called once, by the caller of begin.
func (r *round) end() {
	r.rounds.Add(-1)
	r.leave()
}

// ask sends a question to all nodes that are expected to answer, but to none of skipped. If these
// are too few for a quorum, it asks some of the other nodes as well. If they are still too few for
// an acquire, it asks no node and returns false.
func (r *round) ask(ask question, skipped ...*node) bool {
	r.question = ask
	var room [8]asking
	asked := room[:0]
	for _, n := range r.nodes {
		if slices.Contains(skipped, n) {
			continue
		}
		if c, ok := n.server.Ask(r.kind == acquiring, false, r.pending()); ok {
			asked = append(asked, asking{n, c})
		} else {
			r.held = append(r.held, n)
		}
	}
	if few := len(asked) + len(skipped); few < r.need && r.kind != releasing || few < r.need && len(asked) == 0 {
		r.held = slices.DeleteFunc(r.held, func(n *node) bool {
			c, ok := n.server.Ask(r.kind == acquiring, true, 0)
			if ok {
				asked = append(asked, asking{n, c})
			}
			return ok
		})
	}
	if len(asked)+len(skipped) < r.need && r.kind == acquiring {
		for _, a := range asked {
			a.node.server.Withdraw(a.call)
		}
		return false
	}
	for _, a := range asked {
		r.send(a, ask)
	}
	return true
}

// pending returns how many calls of this process may be under way to a node that the quorum can do
// without. Otherwise a slow node would gather more and more calls.
func (q *quorum) pending() int { return 128 + 2*int(q.rounds.Load()) }

// askHeld asks the nodes that were held back. A node that can't be asked now counts as failed.
func (r *round) askHeld(failed func(*node)) {
	for _, n := range r.held {
		if c, ok := n.server.Ask(r.kind == acquiring, true, 0); ok {
			r.send(asking{n, c}, r.question)
		} else {
			failed(n)
		}
	}
	r.held = nil
}

// errSilent is the vote of a node that was not asked.
var errSilent = backends.AsUnsent(errors.New("not asked: its last call failed, and no probe was answered since"))

// send asks one node, and reports the answer to the node's server queue.
func (r *round) send(to asking, ask question) {
	r.users.Add(1)
	ask(r.ctx, to.node, func(fence uint64, err error) {
		server, failed := to.node.server, failure(err)
		if failed != nil && r.limit < r.quorum.limit && r.ctx.Err() != nil {
			server.Withdraw(to.call) // the node had less time than its limit
		} else {
			server.Answered(to.call, failed)
		}
		r.hear(answer{node: to.node, fence: fence, err: err})
	})
}

// again sends another question to a node that has answered.
func (r *round) again(a answer, ask question) {
	r.users.Add(1)
	ask(r.ctx, a.node, func(fence uint64, err error) {
		a.fence, a.err = fence, err
		r.hear(a)
	})
}

func (r *round) hear(a answer) {
	a.latency = time.Since(r.began)
	r.answers <- a
	r.leave()
}

// failure returns nil for errors that a working node may return, and err for all others.
func failure(err error) error {
	if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) ||
		errors.Is(err, errUnwanted) || errors.Is(err, errUncertain) {
		return nil
	}
	return err
}

// next returns the next answer, or false when ctx or the limit has ended.
func (r *round) next(ctx context.Context) (answer, bool) {
	select {
	case a := <-r.answers:
		return a, true
	default:
	}
	select {
	case a := <-r.answers:
		return a, true
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
	return answer{}, false
}

// ended returns the error of ctx. It returns DeadlineExceeded if the deadline is over and its timer
// has not fired yet: on a busy machine the timer of the node limit may fire first.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
