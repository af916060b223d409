package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// batch is a round trip that several calls share.
type batch struct {
	ctx    context.Context
	cancel context.CancelFunc
	calls  int  // with a ctx that has not ended; guarded by the mutex of the lane
	over   bool // ctx had ended by the time of the answers
}

// lead sends q and the calls that have come by now, hands the permit on, and answers the others.
func (l *lane) lead(q *caller) {
	var sent []*caller // nil if q is alone
	q.Err = ErrStranded
	defer func() { // also if the library panics
		l.leave(q.tenure)
		for _, other := range sent {
			if other != q {
				l.tell(other)
			}
		}
	}()
	if err := driver.Ended(q.ctx); err != nil {
		q.Err = unsent(err)
		return
	}
	sent = l.gather(q)
	if len(sent) <= 1 {
		q.Reply, q.Err = l.alone(q.ctx, q.Args...)
		return
	}
	b := newBatch(sent)
	defer b.cancel()
	l.mu.Lock()
	for _, each := range sent {
		each.batch, each.Err = b, ErrStranded
		if each.left {
			b.leave()
		}
	}
	l.mu.Unlock()
	if q.ctx.Done() != nil {
		defer context.AfterFunc(q.ctx, func() {
			l.mu.Lock()
			b.leave()
			l.mu.Unlock()
		})()
	}
	commands := make([]*driver.Command, len(sent))
	for i, each := range sent {
		commands[i] = &each.Command
	}
	l.together(b.ctx, commands)
	b.over = driver.Ended(b.ctx) != nil
}

// gather returns q and the calls in the queue, or nil if the queue is empty. Calls whose ctx has
// ended are answered. Callers that were answered together call again together: while far fewer have
// come than lately, gather lets other goroutines run first. If there are none, that takes no time.
func (l *lane) gather(q *caller) []*caller {
	var sent []*caller
	l.mu.Lock()
	if l.company >= crowd && l.queued < l.company/2 && !l.gathering {
		l.gathering = true
		l.mu.Unlock()
		l.yield()
		l.mu.Lock()
		l.gathering = false
	}
	for len(sent) < maxTogether {
		other := l.dequeue()
		if other == nil {
			break
		}
		if sent == nil {
			sent = append(make([]*caller, 0, min(l.queued+2, maxTogether)), q)
		}
		other.state = taken
		sent = append(sent, other)
	}
	l.company = max(len(sent), l.company/2)
	l.handOut() // calls that came while this one gathered have not looked for one
	l.mu.Unlock()
	kept := sent[:0]
	for _, each := range sent {
		if err := driver.Ended(each.ctx); err != nil && each != q { // without the mutex: a ctx may be of any make
			each.Err = unsent(err)
			l.tell(each)
			continue
		}
		kept = append(kept, each)
	}
	return kept
}

// newBatch has the values of the first ctx, and the last deadline, if each ctx has one.
func newBatch(sent []*caller) *batch {
	b := &batch{calls: len(sent), cancel: func() {}}
	b.ctx = context.WithoutCancel(sent[0].ctx)
	var last time.Time
	endless, cancellable := false, false
	for _, q := range sent {
		cancellable = cancellable || q.ctx.Done() != nil
		end, ends := q.ctx.Deadline()
		endless = endless || !ends
		if end.After(last) {
			last = end
		}
	}
	switch {
	case !endless:
		b.ctx, b.cancel = context.WithDeadline(b.ctx, last)
	case cancellable:
		b.ctx, b.cancel = context.WithCancel(b.ctx)
	}
	return b
}

// leave is for a call whose ctx has ended. The round trip goes on for the others.
func (b *batch) leave() {
	if b.calls--; b.calls == 0 {
		b.cancel()
	}
}

// explain makes an error of the round trip one of the call with ctx.
func (b *batch) explain(ctx context.Context, err error) error {
	if errors.As(err, new(*driver.ReplyError)) {
		return err
	}
	if w, ok := errors.AsType[*driver.WireError](err); ok {
		return driver.Shared(ctx, w)
	}
	own := driver.Ended(ctx)
	switch {
	case own != nil && !errors.Is(err, own):
		return fmt.Errorf("%w: %w", own, err)
	case own == nil && b.over && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return fmt.Errorf("given up with a call in the same round trip that had no more time: %v", err) //nolint:errorlint // this ctx goes on
	}
	return err
}

// unsent is the end of a ctx before its command was sent.
func unsent(end error) error { return outcome.AsUnsent(fmt.Errorf("not sent: %w", end)) }

// ErrStranded is the error of calls whose goroutine, or the one that sent for them, ended in the
// client library.
var ErrStranded = errors.New("the goroutine that sent it has ended")
