package redlock

import (
	"context"
	"sync/atomic"
	"time"
)

// round puts questions to the nodes and hears their answers, for as long as its limit. The calls go on without the one who
// asked: its ctx lends them its values only.
type round struct {
	*quorum
	limit   time.Duration // for one node
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer
	users   atomic.Int32 // calls under way, and the one who asked
}

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

// begin prepares so many questions, one after the other, each to one node or to all at once.
func (q *quorum) begin(ctx context.Context, limit time.Duration, turns int) *round {
	r := &round{quorum: q, limit: limit, began: time.Now(), answers: make(chan answer, 2*len(q.nodes))}
	r.ctx, r.cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Duration(turns)*limit)
	r.users.Store(1)
	return r
}

// turns is how many questions it takes to ask all nodes.
func (q *quorum) turns() int {
	if q.sequential {
		return len(q.nodes)
	}
	return 1
}

// leave ends the ctx of the calls when the last of them is over, rather than with the limit.
func (r *round) leave() {
	if r.users.Add(-1) == 0 {
		r.cancel()
	}
}

// ask puts one question to all nodes.
func (r *round) ask(ask question) {
	if r.sequential {
		r.users.Add(1)
		go r.askInTurn(ask)
		return
	}
	for i := range r.nodes {
		r.again(answer{node: i}, ask)
	}
}

// again puts a question to one node.
func (r *round) again(a answer, ask question) {
	r.users.Add(1)
	ask(r.ctx, a.node, func(fence uint64, err error) {
		a.fence, a.err, a.latency = fence, err, time.Since(r.began)
		r.answers <- a
		r.leave()
	})
}

// askInTurn gives up a node that does not answer within the limit, even if its client library goes on waiting.
func (r *round) askInTurn(ask question) {
	defer r.leave()
	for i := range r.nodes {
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
