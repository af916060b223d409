package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const (
	answerGrace  = 100 * time.Millisecond // for an attempt under way when the wait limit is reached
	abandonGrace = 50 * time.Millisecond  // for a Locker to follow its ctx and clean up by itself

	// for a Locker to follow the deadline of its ctx, and to say more than that there was no answer. It
	// is no whole millisecond, as other limits are: so an attempt and a node of a quorum never reach
	// theirs at one instant
	deadlineGrace = 2500 * time.Microsecond

	// silence is how long the first attempt of a call with WithWait may have no answer, until the
	// next one is sent. It is long enough for a few round trips to a server far away.
	silence = 2 * time.Second
	// maxDoublings of silence: for each attempt in a row that had no answer
	maxDoublings = 10
	// maxHanging is how many attempts of one call may be under way although the call has left them.
	maxHanging = 8
)

// attempt asks the store once. It returns when ctx is done, or when the limit for an attempt is
// over, whatever the Locker does: the goroutine that receives a later grant releases it. Only an attempt
// on the goroutine of its caller waits for the Locker, which ends it: see alone. A lease that has ended
// when it comes is an error, so that the wait can go on.
func (w *waiting) attempt(ctx, limit context.Context, req *contract.Request, so *effort) error {
	if err := w.asked(ctx, limit, req, so); err != nil {
		return err
	}
	return w.inTime(ctx, req, so)
}

// ask is one question to the Locker. from is the token of a ticket; empty: none.
func (w *waiting) ask(ctx context.Context, from string, req *contract.Request) (contract.Lease, error) {
	if from != "" {
		return w.Transfer(ctx, from, *req)
	}
	return w.Acquire(ctx, *req)
}

// asked is attempt with a lease that may have ended.
func (w *waiting) asked(ctx, limit context.Context, req *contract.Request, so *effort) error {
	if so.tooManyHang() {
		return &hangingError{w.by()}
	}
	began := time.Now()
	so.attempts++
	so.got.wall = w.clock.Read()
	if limit.Done() == nil {
		if shared := w.alone(req, so, began); shared != nil {
			so.hooks = nil
			return w.prompt(shared.with(ctx), req, so, began)
		}
	}
	within := w.patience(req, so)
	until := w.answerWithin(within + deadlineGrace)
	a := &attempt{w: w, from: so.from, req: *req, wait: so.wait, began: began, within: within, done: until.done, err: errNoAnswer}
	a.ctx.countedContext, a.ctx.deadline, a.ctx.said.scoped = countedContext{ctx, w.ledger}, a.began.Add(a.within), so.scoped
	if end, ends := ctx.Deadline(); ends && end.Before(a.ctx.deadline) {
		a.ctx.deadline = end
	}
	go a.run()
	end := context.Canceled
	select {
	case <-a.done:
		until.timer.Stop()
		w.waits.Put(until)
		return a.result(so)
	case <-ctx.Done():
	case <-until.timer.C:
		end = context.DeadlineExceeded
	case <-limit.Done():
		grace := time.NewTimer(answerGrace)
		defer grace.Stop()
		select {
		case <-a.done:
		case <-ctx.Done():
		case <-grace.C:
		}
	}
	until.timer.Stop()
	if over := ctx.Err(); over != nil {
		end = over
	}
	if !a.leave(end) {
		return a.result(so)
	}
	so.left = append(so.left, a)
	if ctx.Err() == nil && limit.Err() == nil {
		so.silent++
		return &silentError{by: w.by(), within: a.within}
	}
	return errUnderWay
}

// inTime makes the lease one that its holder may rely on. A lease that has ended by then is an error.
func (w *waiting) inTime(ctx context.Context, req *contract.Request, so *effort) error {
	got := &so.got
	if ttl := so.wait.relied(req); ttl < req.TTL {
		got.Expires = earlier(got.Expires, contract.Until(got.Granted, ttl))
	}
	if got.ended(time.Now()) {
		return w.tooLate(ctx, req, got)
	}
	return nil
}

// answerWait is what the caller of an attempt waits with. After an answer it is used again: that saves
// four allocations.
type answerWait struct {
	timer *time.Timer
	done  chan struct{} // has room for the one answer
}

func (w *waiting) answerWithin(d time.Duration) *answerWait {
	if a, ok := w.waits.Get().(*answerWait); ok {
		a.timer.Reset(d)
		return a
	}
	return &answerWait{time.NewTimer(d), make(chan struct{}, 1)}
}

// alone returns the ctx for an attempt on the goroutine of its caller, or nil. It is for a Locker
// whose calls end by themselves, and for a TTL that is long enough for that: the call then ends by
// two seconds after the TTL at the latest.
func (w *waiting) alone(req *contract.Request, so *effort, now time.Time) *sharedContext {
	const late = prompt.Overrun - 2*time.Second
	within := w.patience(req, so) - late
	if !w.ends || within < late {
		return nil
	}
	return w.attempts.at(now, within, w.ledger)
}

// prompt asks on the goroutine of the caller.
func (w *waiting) prompt(ctx context.Context, req *contract.Request, so *effort, began time.Time) (err error) {
	so.got.Lease, err = w.ask(ctx, so.from, req)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		// a client library may have seen the end before the timer of ctx
		if end, _ := ctx.Deadline(); !time.Now().Before(end) {
			err = &silentError{by: w.by(), within: time.Since(began).Round(time.Millisecond), err: err}
		}
	}
	return err
}

// patience is how long an attempt may have no answer. A grant that comes after the TTL is of no
// use. A call with WithWait has time for another attempt, on another connection: it is sent sooner,
// but not sooner than this store takes to answer.
func (w *waiting) patience(req *contract.Request, so *effort) time.Duration {
	p := so.wait
	ttl := p.relied(req)
	if p.limit == 0 {
		return ttl
	}
	return min(ttl, max(silence<<min(so.silent, maxDoublings), 3*time.Duration(w.slowest.Load())))
}

// relied is the part of the TTL that the holder relies on: the rest is for a minimum hold.
func (p *waitPolicy) relied(req *contract.Request) time.Duration {
	return min(cmp.Or(p.ttl, req.TTL), req.TTL)
}

// attempt is a call of the Locker that its caller may leave.
type attempt struct {
	w      *waiting
	from   string // see effort
	ctx    attemptContext
	req    contract.Request
	wait   *waitPolicy
	began  time.Time
	within time.Duration // the limit
	done   chan struct{}

	lease contract.Lease
	err   error

	mu         sync.Mutex
	over, left bool
	impatience *time.Timer
}

// result passes on what an attempt has got, and its error. A Locker that follows its ctx may see its
// end as soon as the caller does, and does not report the cause.
func (a *attempt) result(so *effort) error {
	so.got.Lease, so.hooks = a.lease, a.ctx.said.hooks
	err := a.ctx.Context.Err()
	switch {
	case err != nil && errors.Is(a.err, err):
		return errUnderWay
	case errors.Is(a.err, context.DeadlineExceeded) && !time.Now().Before(a.began.Add(a.within)):
		return &silentError{by: a.w.by(), within: a.within, err: a.err}
	}
	return a.err
}

// errUnderWay is the error of an attempt that had no answer when the ctx or the wait ended.
var errUnderWay = errors.New("an attempt is under way")

func (a *attempt) run() {
	defer a.answered() // also if the Locker ends the goroutine
	stack.Grow()
	a.lease, a.err = a.w.ask(&a.ctx, a.from, &a.req)
}

func (a *attempt) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.done <- struct{}{}
	if a.err == nil || errors.Is(a.err, ErrHeld) {
		a.w.answeredIn(a.wait, time.Since(a.began))
	}
	if !a.left {
		return
	}
	if first := a.impatience.Stop(); a.err == nil {
		a.remove(first, true)
	}
	a.ctx.ledger.Done()
}

// answeredIn notes how long the store took. Only calls with WithWait need it.
func (w *waiting) answeredIn(wait *waitPolicy, took time.Duration) {
	if wait.limit == 0 {
		return
	}
	slowest := w.slowest.Load()
	w.slowest.Store(max(int64(took), slowest-(slowest-int64(took))/8)) // of two at once, one may get lost
}

// leave makes the goroutine that receives the answer responsible for it, and ends the ctx with err.
// It is false if the answer is there already.
func (a *attempt) leave(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	// A Locker that follows its ctx cleans up by itself. Do not wait for one that does not: the
	// store may have granted the lease already.
	a.ctx.ledger.Begin()
	a.left, a.impatience = true, time.AfterFunc(abandonGrace, func() { a.remove(false, false) })
	a.ctx.end(err)
	return true
}

// remove releases a lease that exists, or that may exist now or later. granted says that the store
// has just granted it.
func (a *attempt) remove(known, granted bool) {
	a.w.cleanups.Add(&a.ctx, cleanup.Entry{
		TTL: a.req.TTL, Known: known, AtOnce: granted, Remove: a.release, Done: a.ctx.ledger.Count(),
	})
}

// release ends a lease that nobody wants. Key and Token suffice to name it.
func (a *attempt) release(ctx context.Context) error {
	return releaseOnce(ctx, a.w.Locker, contract.Lease{Key: a.req.Key, Token: a.req.Token, Owner: a.req.Owner})
}

func (a *attempt) hangs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.over
}

// isSilent tells whether an attempt had no answer, or was not sent since others had none.
func isSilent(err error) bool {
	switch err.(type) { //nolint:errorlint // attempt does not wrap them

	case *silentError, *hangingError:
		return true
	}
	return false
}

// silentError says that an attempt had no answer within its limit. Its outcome is unknown.
type silentError struct {
	by     string // who was asked
	within time.Duration
	err    error // of a client library that follows the deadline; nil: it has not returned
}

func (e *silentError) Error() string {
	s := fmt.Sprintf("no answer from %s within %v", e.by, e.within)
	if e.err != nil {
		return s + ": " + text(e.err)
	}
	return s + "; the outcome is unknown, and it is cleaned up in the background"
}

// Is and As look at the error of the library. Is leaves out the deadline, which is not that of the
// caller's ctx.
func (e *silentError) Is(target error) bool {
	return target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e *silentError) As(target any) bool { return errors.As(e.err, target) }

// ErrorType is "timeout".
func (e *silentError) ErrorType() string { return "timeout" }

// hangingError says that no attempt was sent, since many attempts of the same call hang.
type hangingError struct{ by string }

func (e *hangingError) Error() string {
	return fmt.Sprintf("not sent: %d attempts of this call have no answer from %s, and the client library has not given them up", maxHanging, e.by)
}

// Unsent says that nothing was sent.
func (*hangingError) Unsent() bool { return true }

// ErrorType is "timeout".
func (*hangingError) ErrorType() string { return "timeout" }
