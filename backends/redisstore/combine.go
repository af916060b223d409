package redisstore

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/stack"
)

const (
	sends       = 3                      // hold the permits of a lane
	crowd       = 4                      // in a round trip, after which those who come look for each other
	maxTogether = 100                    // commands in a round trip
	overdue     = 500 * time.Microsecond // is a send that others wait for, after this or up to twice this
	patience    = time.Second            // with a round trip, when a call in it has no more time
)

// combiner lets calls share round trips. Who finds a permit of its lane free sends its own command at once, and pays two
// uses of a mutex for it. Others queue. When a send returns, its permit goes to the first in the queue, which sends on behalf of
// all that have come by then. So the more is under way, the more travels together, and nobody who has its answer sends for others.
// After a round trip of many (crowd), who finds a permit lets others run and come along, before he sends: see gather.
//
// A call that somebody waits for is made on his goroutine. One that was started with a function for its answer has none: when it
// is to lead, a goroutine is made for the round trip, however many are in it. Of its ctx only the deadline counts once it is sent.
//
// A call whose ctx ends in the queue was not sent, and its error says so. One that was sent waits for its answer, as it would
// alone: who does not know when it ends can't clean up after it. If it takes long (patience), a round trip ends with
// the first ctx in it that ends, else with the last one.
//
// A send that takes long (overdue) while others wait loses its permit. So a connection that hangs does not keep them waiting, and a
// server that is far away has as many sends at once as calls come.
//
// Do and Once have a combiner each: what a library may send again, with its pauses, would keep the others waiting.
type combiner struct {
	alone    call
	together func(ctx context.Context, commands []*driver.Command)
	name     func(ctx context.Context, args []any) any
	yield    func() // lets other goroutines run: runtime.Gosched; tests replace it
	unnamed  lane
	named    sync.Map // name to *lane
	calls    sync.Pool
}

func combine(alone call, together func(context.Context, []*driver.Command), name func(context.Context, []any) any) *combiner {
	c := &combiner{alone: alone, together: together, name: name, yield: runtime.Gosched}
	c.unnamed.combiner = c
	return c
}

// send waits for the answer.
func (c *combiner) send(ctx context.Context, args ...any) (any, error) {
	return c.lane(ctx, args).send(ctx, args)
}

// start does not wait: then is called with the answer, once, on another goroutine, and must not wait for anything.
func (c *combiner) start(ctx context.Context, then answer, args ...any) {
	c.lane(ctx, args).start(ctx, then, args)
}

type answer func(reply any, err error)

func (c *combiner) lane(ctx context.Context, args []any) *lane {
	name := c.name(ctx, args)
	if name == nil {
		return &c.unnamed
	}
	l, ok := c.named.Load(name)
	if !ok {
		l, _ = c.named.LoadOrStore(name, &lane{combiner: c})
	}
	return l.(*lane)
}

// lane is the way to one server. Nobody is in the queue while a permit is free, unless somebody gathers.
type lane struct {
	*combiner
	mu          sync.Mutex
	permits     [sends]permit
	queued      int     // how many are in the queue
	company     int     // how many were in the last round trip, or half of it before
	gathering   bool    // somebody is about to send what is in the queue
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

// caller is a call that found no permit, or company, or that nobody waits for.
type caller struct {
	driver.Command
	ctx    context.Context
	next   *caller
	tenure tenure        // to lead
	batch  *batch        // that it is in
	state  state         // guarded by the mutex of the lane
	left   bool          // its ctx has ended since it is taken
	answer chan struct{} // it leads, or is answered
	then   answer        // nil if somebody waits
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
	i := l.free()
	if i < 0 || l.gathering {
		q := l.caller(ctx, args, nil)
		l.enqueue(q)
		l.mu.Unlock()
		return l.wait(q)
	}
	t, company := l.take(i), l.company >= crowd
	l.mu.Unlock()
	if company {
		q := l.caller(ctx, args, nil)
		q.state, q.tenure = leading, t
		l.lead(q)
		return l.result(q)
	}
	defer l.leave(t) // also if the library panics
	return l.alone(ctx, args...)
}

func (l *lane) start(ctx context.Context, then answer, args []any) {
	q := l.caller(ctx, args, then)
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.free(); i >= 0 && !l.gathering {
		l.entrust(q, i)
	} else {
		l.enqueue(q)
	}
}

// free is a permit that nobody has, or -1.
func (l *lane) free() int {
	for i := range l.permits {
		if !l.permits[i].taken {
			return i
		}
	}
	return -1
}

func (c *combiner) caller(ctx context.Context, args []any, then answer) *caller {
	q, _ := c.calls.Get().(*caller)
	if q == nil {
		q = &caller{answer: make(chan struct{}, 1)}
	}
	q.Args, q.ctx, q.then = args, ctx, then
	return q
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
		l.entrust(q, i)
	}
}

// handOut gives the queue what permits there are.
func (l *lane) handOut() {
	for i := l.free(); i >= 0 && l.first != nil; i = l.free() {
		l.hand(i)
	}
}

// entrust gives q a permit, to lead.
func (l *lane) entrust(q *caller, i int) {
	q.state, q.tenure = leading, l.take(i)
	if q.then != nil {
		go l.work(q)
		return
	}
	q.answer <- struct{}{}
}

// work leads for a call that nobody waits for.
func (l *lane) work(q *caller) {
	defer l.tell(q) // also if the library ends the goroutine
	stack.Grow()
	l.lead(q)
}

func (l *lane) enqueue(q *caller) {
	if l.first == nil {
		l.first = q
	} else {
		l.last.next = q
	}
	l.last = q
	l.queued++
	if !l.timed {
		l.watch()
	}
}

// dequeue is nil if nobody waits.
func (l *lane) dequeue() *caller {
	for q := l.first; q != nil; q = l.first {
		l.first, q.next = q.next, nil
		l.queued--
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
	return l.result(q)
}

// tell says that q is answered.
func (l *lane) tell(q *caller) {
	switch then := q.then; {
	case then == nil:
		q.answer <- struct{}{}
	case q.Alone:
		stack.Go(func() (any, error) { return l.result(q) }, errStranded, then) // takes a round trip of its own
	default:
		then(l.result(q))
	}
}

// result is for who called, and the end of q.
func (l *lane) result(q *caller) (any, error) {
	reply, err := q.Reply, q.Err
	switch {
	case q.Alone && driver.Ended(q.ctx) == nil:
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
