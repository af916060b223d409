package pipeline

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// lateBy is how much later another round trip was sent that has its answer already, when one is
// overtaken. Where a round trip takes longer than this, it is as long as that.
const lateBy = 200 * time.Millisecond

// OvertakenError is the error of a call that was left: calls that were sent later, on another
// connection, are answered already. The outcome of the call is unknown, and it may still be on its
// way.
type OvertakenError struct {
	mu   sync.Mutex
	over bool
	err  error
	then func(error)
}

func (*OvertakenError) Error() string {
	return "no answer, and others that were sent later are answered"
}

// Stale says that another attempt may get through at once.
func (*OvertakenError) Stale() bool { return true }

// Unwrap is a timeout.
func (*OvertakenError) Unwrap() error { return os.ErrDeadlineExceeded }

// Later calls then when the client library has ended the call, which can't be carried out after
// that. The error is nil if the server has answered it. Then must not wait. Later is called once.
func (e *OvertakenError) Later(then func(error)) {
	e.mu.Lock()
	over, err := e.over, e.err
	e.then = then
	e.mu.Unlock()
	if over {
		then(err)
	}
}

func (e *OvertakenError) answered(err error) {
	e.mu.Lock()
	e.over, e.err = true, err
	then := e.then
	e.mu.Unlock()
	if then != nil {
		then(err)
	}
}

// begin counts b among the round trips under way.
func (l *lane) begin(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, each := range b.sent {
		each.batch, each.Err = b, ErrStranded
		if each.left {
			b.leave()
		}
	}
	l.under = append(l.under, b)
}

// end is called when the library has returned, before a call of b is told its answer.
func (l *lane) end(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.ended = true
	l.under = slices.DeleteFunc(l.under, func(other *batch) bool { return other == b })
}

// overtake is called when a round trip that began then has an answer. It ends the wait for those that
// were sent long before it, and have none: their connection is silent. So an answer of the server
// shows that it is the connection and not the server; while nothing is answered, nothing is left. Only
// calls that may be left are, and a call that leads waits for its library.
func (l *lane) overtake(began time.Time) {
	if l.mayLeave == nil {
		return
	}
	type call struct {
		q    *caller
		b    *batch
		ctx  context.Context
		args []any
	}
	var late []call
	l.mu.Lock()
	for _, b := range l.under {
		if b.overtaken || began.Sub(b.began) < max(lateBy, time.Since(began)) {
			continue
		}
		b.overtaken = true
		for _, q := range b.sent[1:] {
			if q.then == nil {
				late = append(late, call{q, b, q.ctx, q.Args})
			}
		}
	}
	l.mu.Unlock()
	late = slices.DeleteFunc(late, func(c call) bool { return !l.mayLeave(c.ctx, c.args) }) // without the mutex
	for _, c := range late {
		l.mu.Lock()
		if !c.b.ended { // or its caller has the answer
			c.q.state, c.q.late = overtaken, new(OvertakenError)
			if !c.q.left {
				c.b.leave()
			}
			c.q.answer <- struct{}{}
		}
		l.mu.Unlock()
	}
}

// answered is called when the library has returned from a call that was left.
func (q *caller) answered() {
	err := q.Err
	if isReply(err) {
		err = nil
	}
	q.late.answered(err)
}

func isAnswered(err error) bool { return err == nil || isReply(err) }

func isReply(err error) bool { return errors.As(err, new(*driver.ReplyError)) }
