// Package pipeline lets calls that are made at the same time share round trips.
package pipeline

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/stack"
)

const (
	sends       = 3                      // permits of a lane
	crowd       = 4                      // calls in a round trip, after which the next ones look for each other
	maxTogether = 100                    // commands in a round trip
	overdue     = 500 * time.Microsecond // a send that others wait for is overdue after this, or up to twice this
)

// Pipeline lets calls share round trips. A call that finds a permit of its lane free sends its own
// command at once. That costs it two uses of a mutex. The other calls queue. When a send returns,
// its permit goes to the first call in the queue, which sends for all that have come by then. So
// the more calls are under way, the more travel together, and no call that has its answer sends for
// others. After a round trip of many (crowd), a call that finds a permit lets other goroutines run
// first: see gather.
//
// A call that somebody waits for runs on the goroutine of its caller. A started call has no
// goroutine: one is made for the round trip that it leads, however many calls are in it. Of the ctx
// of a started call, only the deadline counts once it is sent.
//
// A call whose ctx ends in the queue was not sent, and its error says so. A call that was sent
// waits for its answer, as it would alone: a caller that does not know when it ends can't clean up
// after it. A round trip ends when the last ctx in it has ended, so that the end of one call makes
// the outcome of no other unknown.
//
// A send that takes long (overdue) while others wait loses its permit. So a connection that hangs
// does not delay the others, and a server that is far away gets as many sends at once as calls
// come.
//
// Do and Once need a Pipeline each: a library may send the commands of Do again, with pauses.
type Pipeline struct {
	alone    Call
	together func(ctx context.Context, commands []*driver.Command)
	laneOf   func(ctx context.Context, args []any) any
	yield    func() // lets other goroutines run: runtime.Gosched; tests replace it
	unnamed  lane
	named    sync.Map // the value of laneOf to *lane
	calls    sync.Pool
}

// Call sends a command and waits for the answer.
type Call = func(ctx context.Context, args ...any) (any, error)

// Answer gets the answer to a started call.
type Answer = func(reply any, err error)

// New returns a Pipeline over the methods of a [driver.Pipeliner]: Do, DoAll and Lane, or Once,
// OnceAll and Lane.
func New(alone Call, together func(context.Context, []*driver.Command), laneOf func(context.Context, []any) any) *Pipeline {
	p := &Pipeline{alone: alone, together: together, laneOf: laneOf, yield: runtime.Gosched}
	p.unnamed.Pipeline = p
	return p
}

// Send waits for the answer.
func (p *Pipeline) Send(ctx context.Context, args ...any) (any, error) {
	return p.lane(ctx, args).send(ctx, args)
}

// Start does not wait. It calls then with the answer, once, on another goroutine. Then must not
// wait.
func (p *Pipeline) Start(ctx context.Context, then Answer, args ...any) {
	p.lane(ctx, args).start(ctx, then, args)
}

func (p *Pipeline) lane(ctx context.Context, args []any) *lane {
	name := p.laneOf(ctx, args)
	if name == nil {
		return &p.unnamed
	}
	l, ok := p.named.Load(name)
	if !ok {
		l, _ = p.named.LoadOrStore(name, &lane{Pipeline: p})
	}
	return l.(*lane)
}

// lane is the way to one server. While a permit is free the queue is empty, unless a call gathers.
type lane struct {
	*Pipeline
	mu          sync.Mutex
	permits     [sends]permit
	queued      int     // how many are in the queue
	company     int     // how many were in the last round trip, or half of it before
	gathering   bool    // a call is about to send what is in the queue
	first, last *caller // the queue; some calls may have withdrawn
	timer       *time.Timer
	timed       bool // the timer is set
}

// permit is the right to send. Turn grows with each owner, so that an overdue send can lose it.
type permit struct {
	taken bool
	turn  uint64
	seen  uint64 // turn when the timer was set
}

// tenure is a permit and the turn of its owner.
type tenure struct {
	permit int
	number uint64
}

// caller is a call that found no permit, or has company, or was started.
type caller struct {
	driver.Command
	ctx    context.Context
	next   *caller
	tenure tenure        // to lead
	batch  *batch        // that it is in
	state  state         // guarded by the mutex of the lane
	left   bool          // its ctx has ended since it was taken
	answer chan struct{} // it leads, or is answered
	then   Answer        // of a started call; nil: somebody waits
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

func (l *lane) start(ctx context.Context, then Answer, args []any) {
	q := l.caller(ctx, args, then)
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.free(); i >= 0 && !l.gathering {
		l.entrust(q, i)
	} else {
		l.enqueue(q)
	}
}

// free is the index of a free permit, or -1.
func (l *lane) free() int {
	for i := range l.permits {
		if !l.permits[i].taken {
			return i
		}
	}
	return -1
}

func (p *Pipeline) caller(ctx context.Context, args []any, then Answer) *caller {
	q, _ := p.calls.Get().(*caller)
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

// handOut gives the free permits to the queue.
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

// work leads for a started call.
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

// dequeue returns the first call that has not withdrawn, or nil.
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

// watch sets the timer for the sends under way.
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

// expire takes the permits of the sends that are still under way.
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
			return nil, unsent(q.ctx.Err())
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
		stack.Go(func() (any, error) { return l.result(q) }, ErrStranded, then) // takes a round trip of its own
	default:
		then(l.result(q))
	}
}

// result is for the caller, and ends q.
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
