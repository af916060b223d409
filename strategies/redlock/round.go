package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// round puts questions to the nodes and hears their answers, for as long as its limit. The calls go on without the one who
// asked: its ctx lends them its values only.
type round struct {
	*quorum
	kind    kind
	limit   time.Duration // for one node
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer
	users   atomic.Int32 // calls under way, and the one who asked

	question question
	held     []int // nodes that are not asked as long as the others can make the quorum
}

// kind is what a round is for.
type kind byte

const (
	acquiring kind = iota
	extending
	releasing
	abandoning // of which all nodes are asked at once
)

// question is what one node is asked. It does not wait: then is called with the answer, once.
type question func(ctx context.Context, node int, then reply)

// reply takes an answer, which may have a number.
type reply func(fence uint64, err error)

// answer is what a node said.
type answer struct {
	node    int
	raise   bool // whether the question was to raise its number
	fence   uint64
	err     error
	latency time.Duration // since the round began, or it was the turn of the node
}

// asking is a node that may be asked.
type asking struct {
	node int
	call cleanup.Call
}

// begin prepares questions, each to one node or to all at once.
func (q *quorum) begin(ctx context.Context, limit time.Duration, k kind) *round {
	r := &round{quorum: q, kind: k, limit: limit, began: time.Now(), answers: make(chan answer, 2*len(q.nodes))}
	turns := 1
	if q.sequential && k != abandoning {
		turns = len(q.nodes)
	}
	r.ctx, r.cancel = context.WithTimeout(detached{ctx, k == acquiring}, time.Duration(turns)*limit)
	r.users.Store(1)
	q.rounds.Add(1)
	return r
}

// detached has the values of a ctx and not its end. Nodes that are asked for a grant leave the
// cleanup to the quorum.
type detached struct {
	context.Context
	byCaller bool
}

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

func (d detached) Value(key any) any {
	if d.byCaller && key == (cleanup.ByCaller{}) {
		return true
	}
	return d.Context.Value(key)
}

// leave ends the ctx of the calls when the last of them is over, rather than with the limit.
func (r *round) leave() {
	if r.users.Add(-1) == 0 {
		r.cancel()
	}
}

// end is called once, by the one who asked.
func (r *round) end() {
	r.rounds.Add(-1)
	r.leave()
}

// ask puts one question to all nodes that can be expected to answer. If they are too few for a
// quorum, it asks some of the others as well, and if these are too few, nobody: then it returns
// false.
func (r *round) ask(ask question, skip func(node int) bool) bool {
	r.question = ask
	if r.sequential {
		r.users.Add(1)
		go r.askInTurn(ask, skip)
		return true
	}
	var room [8]asking
	asked, skipped := room[:0], 0
	for i := range r.nodes {
		if skip(i) {
			skipped++
		} else if c, ok := r.nodes[i].server.Ask(r.kind == acquiring, false, r.pending()); ok {
			asked = append(asked, asking{i, c})
		} else {
			r.held = append(r.held, i)
		}
	}
	if few := len(asked) + skipped; few < r.need && r.kind != releasing || few < r.need && len(asked) == 0 {
		for i := 0; i < len(r.held); {
			if c, ok := r.nodes[r.held[i]].server.Ask(r.kind == acquiring, true, 0); ok {
				asked = append(asked, asking{r.held[i], c})
				r.held = append(r.held[:i], r.held[i+1:]...)
				continue
			}
			i++
		}
	}
	if len(asked)+skipped < r.need && r.kind == acquiring {
		for _, a := range asked {
			r.nodes[a.node].server.Withdraw(a.call)
		}
		return false
	}
	for _, a := range asked {
		r.send(a, ask)
	}
	return true
}

// pending is how many calls of this process may be under way to a node that the others can do
// without: a node that is slow must not gather more and more of them.
func (q *quorum) pending() int { return 128 + 2*int(q.rounds.Load()) }

// askHeld asks the nodes that were held back. Those that can't be asked now have failed.
func (r *round) askHeld(failed func(answer)) {
	for _, i := range r.held {
		if c, ok := r.nodes[i].server.Ask(r.kind == acquiring, true, 0); ok {
			r.send(asking{i, c}, r.question)
		} else {
			failed(answer{node: i, err: errSilent})
		}
	}
	r.held = nil
}

// errSilent is the vote of a node that was not asked.
var errSilent error = silence{}

type silence struct{}

func (silence) Error() string { return "not asked, since it did not answer or refused before" }

// Unsent says that nothing was sent.
func (silence) Unsent() bool { return true }

// send puts a question to one node, and counts the call out when it is answered.
func (r *round) send(to asking, ask question) {
	r.users.Add(1)
	ask(r.ctx, to.node, func(fence uint64, err error) {
		server, failed := r.nodes[to.node].server, failure(err)
		if failed != nil && r.limit < r.quorum.limit && r.ctx.Err() != nil {
			server.Withdraw(to.call) // a caller in a hurry: the node had less than its limit
		} else {
			server.Answered(to.call, failed)
		}
		r.hear(answer{node: to.node, fence: fence, err: err})
	})
}

// again puts one more question to a node that was asked before.
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

// failure is err, unless a node that does all that it is asked to may say so.
func failure(err error) error {
	if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) ||
		errors.Is(err, errUnwanted) || errors.Is(err, errUncertain) {
		return nil
	}
	return err
}

// askInTurn gives up a node that does not answer within the limit, even if its client library goes on waiting.
func (r *round) askInTurn(ask question, skip func(int) bool) {
	defer r.leave()
	for i := range r.nodes {
		if skip(i) {
			continue
		}
		ctx, cancel := context.WithTimeout(r.ctx, r.limit)
		began, heard := time.Now(), make(chan answer, 1)
		r.users.Add(1)
		ask(ctx, i, func(fence uint64, err error) {
			heard <- answer{node: i, fence: fence, err: err, latency: time.Since(began)}
			r.leave()
		})
		select {
		case a := <-heard:
			r.answers <- a
		case <-ctx.Done():
			r.answers <- answer{node: i, err: errNoAnswer, latency: r.limit}
		}
		cancel()
	}
}

// next returns the next answer, or false when ctx or the limit has ended, and with it the hope for one.
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

// ended is the error of ctx, or DeadlineExceeded if its deadline is over and its timer has not fired
// yet. On a busy machine the timer of the node limit may fire first.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
