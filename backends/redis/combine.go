package redis

import (
	"context"
	"sync"
	"time"
)

const (
	maxSends    = 3                // under way in a lane
	maxTogether = 100              // commands in a round trip
	overdue     = time.Millisecond // is a send that others wait for, after this or up to twice this
	patience    = time.Second      // with a round trip, when a call in it has no more time
)

// combiner lets calls share round trips. Who finds a permit of its lane free sends its own command at once, and pays two
// uses of a mutex for it. Others queue. When a send returns, its permit goes to the first in the queue, which sends on behalf of
// all that have come by then. So the more is under way, the more travels together; nobody who has its answer works for others;
// and there is no goroutine but the callers'.
//
// A call whose ctx ends in the queue was not sent, and its error says so. One that was sent waits for its answer, as it would
// alone: who does not know when it ends can't clean up after it. If it takes long (patience), a round trip ends with
// the first ctx in it that ends, else with the last one. A send that takes longer than usual (overdue) loses its permit, since a
// connection that hangs must not keep all others waiting.
//
// Do and Once have a combiner each: what a library may send again, with its pauses, would keep the others waiting.
type combiner struct {
	alone    call
	together func(ctx context.Context, commands []*Command)
	name     func(ctx context.Context, args []any) any
	unnamed  lane
	named    sync.Map // name to *lane
	calls    sync.Pool
}

func combine(alone call, together func(context.Context, []*Command), name func(context.Context, []any) any) call {
	c := &combiner{alone: alone, together: together, name: name}
	c.unnamed.combiner = c
	return c.send
}

func (c *combiner) send(ctx context.Context, args ...any) (any, error) {
	name := c.name(ctx, args)
	if name == nil {
		return c.unnamed.send(ctx, args)
	}
	l, ok := c.named.Load(name)
	if !ok {
		l, _ = c.named.LoadOrStore(name, &lane{combiner: c})
	}
	return l.(*lane).send(ctx, args)
}

// lane is the way to one server. Nobody is in the queue while a permit is free.
type lane struct {
	*combiner
	mu          sync.Mutex
	permits     [maxSends]permit
	first, last *caller // the queue; some may have withdrawn
	timer       *time.Timer
	timed       bool // the timer is set
}

// permit is the right to send. Turn grows whenever it changes hands, so that an overdue send can lose it.
type permit struct {
	taken bool
	turn  uint64
	seen  uint64 // turn when the timer was set
}

// tenure is a permit while it is in somebody's hands.
type tenure struct {
	permit int
	number uint64
}

// caller is a call that found no permit.
type caller struct {
	Command
	ctx    context.Context
	next   *caller
	tenure tenure        // to lead
	batch  *batch        // that it is in
	state  state         // guarded by the mutex of the lane
	left   bool          // its ctx has ended since it is taken
	answer chan struct{} // it leads, or is answered
}

type state int

const (
	waiting state = iota
	withdrawn
	leading
	taken // by a leader
)

func (l *lane) send(ctx context.Context, args []any) (any, error) {
	l.mu.Lock()
	i := 0
	for i < maxSends && l.permits[i].taken {
		i++
	}
	if i == maxSends {
		q := l.enqueue(ctx, args)
		l.mu.Unlock()
		return l.wait(q)
	}
	t := l.take(i)
	l.mu.Unlock()
	defer l.leave(t) // also if the library panics
	return l.alone(ctx, args...)
}

func (l *lane) take(i int) tenure {
	l.permits[i].taken = true
	l.permits[i].turn++
	return tenure{i, l.permits[i].turn}
}

// leave hands the permit on, unless that was done before.
func (l *lane) leave(t tenure) {
	l.mu.Lock()
	if l.permits[t.permit].turn == t.number {
		l.hand(t.permit)
	}
	l.mu.Unlock()
}

func (l *lane) hand(i int) {
	l.permits[i].taken = false
	if q := l.dequeue(); q != nil {
		q.state, q.tenure = leading, l.take(i)
		q.answer <- struct{}{}
	}
}

func (l *lane) enqueue(ctx context.Context, args []any) *caller {
	q, _ := l.calls.Get().(*caller)
	if q == nil {
		q = &caller{answer: make(chan struct{}, 1)}
	}
	q.Args, q.ctx = args, ctx
	if l.first == nil {
		l.first = q
	} else {
		l.last.next = q
	}
	l.last = q
	if !l.timed {
		l.watch()
	}
	return q
}

// dequeue is nil if nobody waits.
func (l *lane) dequeue() *caller {
	for q := l.first; q != nil; q = l.first {
		l.first, q.next = q.next, nil
		if q.state == waiting {
			return q
		}
	}
	l.last = nil
	return nil
}

// watch sets the timer for those that send now.
func (l *lane) watch() {
	for i := range l.permits {
		l.permits[i].seen = l.permits[i].turn
	}
	l.timed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(overdue, l.expire)
	} else {
		l.timer.Reset(overdue)
	}
}

// expire takes the permits of those that still send.
func (l *lane) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timed = false
	for i := range l.permits {
		if l.permits[i].taken && l.permits[i].turn == l.permits[i].seen && l.first != nil {
			l.hand(i)
		}
	}
	if l.first != nil {
		l.watch()
	}
}

func (l *lane) wait(q *caller) (any, error) {
	select {
	case <-q.answer:
	case <-q.ctx.Done():
		if l.withdraw(q) {
			return nil, unsent{q.ctx.Err()}
		}
		<-q.answer
	}
	if q.state == leading {
		l.lead(q)
	}
	reply, err := q.Reply, q.Err
	switch {
	case q.Alone && Ended(q.ctx) == nil:
		reply, err = l.alone(q.ctx, q.Args...)
	case err != nil && q.batch != nil:
		err = q.batch.explain(q.ctx, err)
	}
	*q = caller{answer: q.answer}
	l.calls.Put(q)
	return reply, err
}

// withdraw tells whether q will not be sent.
func (l *lane) withdraw(q *caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch q.state {
	case waiting:
		q.state = withdrawn
		q.Args = nil
		return true
	case taken:
		q.left = true
		if q.batch != nil {
			q.batch.leave()
		}
	}
	return false
}
