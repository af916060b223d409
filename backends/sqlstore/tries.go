package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

const (
	answerTime = 100 * time.Millisecond // for an error to reach the caller of a call whose ctx ends
	lateTime   = 500 * time.Millisecond // after the end of the ctx, for an answer on a connection of the reserve

	// how long a call whose row is locked leaves the reserve to others, at first and at most
	leastPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond

	reserveTries = 3   // connections that turn out to be dead before anything was done
	idledTries   = 100 // those that the server has ended for their idleness: a pool may be full of them
)

// attempt runs fn, once, on a connection of the pool. A call with several statements has kept the
// connection of the one before: it needs no second one.
func (r *reserve[C]) attempt(ctx context.Context, fn func(c C) error) error {
	c, spare := r.spare()
	if spare {
		return r.attemptOn(ctx, c, nil, fn)
	}
	c, err := r.fromPool(ctx)
	return r.attemptOn(ctx, c, err, fn)
}

// spare takes a connection of the pool out of the reserve, if no lock is held that may need it.
func (r *reserve[C]) spare() (c C, ok bool) {
	if r.open != nil || r.holding() {
		return c, false
	}
	o := r.get()
	if o == nil {
		return c, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lessLocked()
	return o.conn, true
}

// attemptOn is attempt with what the pool has answered.
func (r *reserve[C]) attemptOn(ctx context.Context, c C, err error, fn func(c C) error) error {
	maybeSent := false
	for try := 1; ; try++ {
		if err != nil {
			return notAcquired(err, maybeSent)
		}
		err = fn(c)
		if !r.alive(err) {
			c.Close()
		} else {
			r.keep(c)
		}
		if !r.goesOn(ctx, err, try) {
			return tried(err, maybeSent)
		}
		maybeSent = maybeSent || !backends.Unsent(err) && !r.idled(err)
		c, err = r.fromPool(ctx)
	}
}

// work is what a holder does on a connection. kept tells that this is one of the reserve, where work must
// not wait for a row: if it would have to, it fails.
type work[C any] func(ctx context.Context, c C, kept bool) error

// holder runs fn for a holder, once. If the row is locked, fn runs again: see behind.
// If first is false, the pool is asked before the reserve, unless it is used up.
func (r *reserve[C]) holder(ctx context.Context, first bool, fn work[C]) error {
	maybeSent := false
	for try := 1; ; try++ {
		o, c, err := r.take(ctx, first)
		if err != nil {
			return notAcquired(err, maybeSent)
		}
		if o == nil {
			err = fn(ctx, c, false)
			if !r.alive(err) {
				c.Close()
			} else {
				r.keep(c)
			}
		} else if ran, failed := r.onOwn(ctx, o, fn); ran {
			err = failed
		} else {
			if try < reserveTries && ctx.Err() == nil {
				continue // nothing was sent for fn
			}
			return notAcquired(failed, maybeSent)
		}
		if o != nil && r.locked(err) && ctx.Err() == nil {
			return tried(r.behind(ctx, err, fn), maybeSent)
		}
		if !r.goesOn(ctx, err, try) {
			return tried(err, maybeSent)
		}
		maybeSent = maybeSent || !backends.Unsent(err) && !r.idled(err)
	}
}

// behind runs fn for a holder whose row somebody has locked, such as a transaction of the application. On a
// connection of the pool it waits for the row. Until the pool has one, fn runs on one of the reserve now and
// then, when no other call wants that. locked is the error of the try before.
func (r *reserve[C]) behind(ctx context.Context, locked error, fn work[C]) error {
	maybeSent := false
	asked, leave := r.ask(ctx)
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		timer := time.NewTimer(pause)
		select {
		case got := <-asked:
			timer.Stop()
			if got.err != nil {
				return notAcquired(fmt.Errorf("%w, and then %w", locked, got.err), maybeSent)
			}
			return tried(r.attemptOn(ctx, got.c, nil, func(c C) error { return fn(ctx, c, false) }), maybeSent)
		case <-timer.C:
		}
		o := r.get()
		if o == nil {
			r.more()
			continue
		}
		ran, err := r.onOwn(ctx, o, fn)
		switch {
		case !ran && ctx.Err() == nil: // another connection comes
		case !ran:
			leave()
			return notAcquired(err, maybeSent)
		case r.locked(err):
			locked = err
		case r.goesOn(ctx, err, 0):
			maybeSent = maybeSent || !backends.Unsent(err) && !r.idled(err)
		default:
			leave()
			return tried(err, maybeSent)
		}
	}
}

// onOwn runs fn on a connection of the reserve, which it gives back. A driver closes a connection whose
// statement is cancelled, and then the application may take its place in the pool. So a statement has a
// moment to be answered after the end of ctx. ran is false if the connection was not fit: nothing was sent
// for fn.
func (r *reserve[C]) onOwn(ctx context.Context, o *own[C], fn work[C]) (ran bool, err error) {
	type end struct {
		ran bool
		err error
	}
	ended := make(chan end, 1)
	go func() {
		longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(lateTime, cancel) })
		defer stop()
		if err := r.ready(longer, o); err != nil {
			r.back(o, false)
			ended <- end{false, err}
			return
		}
		err := fn(longer, o.conn, true)
		r.back(o, r.alive(err))
		ended <- end{true, err}
	}()
	select {
	case is := <-ended:
		return is.ran, is.err
	case <-ctx.Done():
		return true, ctx.Err() // as far as is known
	}
}

// ask takes a connection of the pool behind the caller. One that it leaves is given back.
func (r *reserve[C]) ask(ctx context.Context) (asked <-chan acquired[C], leave func()) {
	ctx, stop := context.WithCancel(ctx)
	got := make(chan acquired[C], 1)
	go func() {
		defer stop()
		c, err := r.fromPool(ctx)
		got <- acquired[C]{c, err}
	}()
	return got, func() {
		stop()
		go func() {
			if late := <-got; late.err == nil {
				r.keep(late.c)
				r.settle()
			}
		}()
	}
}

// acquired is an answer of the pool.
type acquired[C any] struct {
	c   C
	err error
}

// fromPool takes a connection of the pool. It ends before ctx does, so that the caller hears that nothing
// was sent before the end of ctx makes it leave.
func (r *reserve[C]) fromPool(ctx context.Context) (C, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-min(time.Until(end)/4, answerTime)))
		defer cancel()
	}
	return r.acquire(ctx)
}

// goesOn tells that a call may go to another connection: the driver or the server has said that this one was
// dead and that the statement was not done.
func (r *reserve[C]) goesOn(ctx context.Context, err error, try int) bool {
	switch {
	case err == nil || ctx.Err() != nil:
		return false
	case r.idled(err):
		return try < idledTries
	}
	return try < reserveTries && (errors.Is(err, driver.ErrBadConn) || backends.Unsent(err))
}

// idled tells that the server has ended the connection for its idleness, so it has run nothing of the
// call.
func (r *reserve[C]) idled(err error) bool {
	if err == nil {
		return false
	}
	told := r.classify(err)
	return told != nil && told.State == "57P05"
}

// notAcquired is the error of a call that got no connection. maybeSent says that a connection of this
// call broke before. A driver may say that nothing was done then, and be wrong.
func notAcquired(err error, maybeSent bool) error {
	switch {
	case maybeSent:
		return maybe{err}
	case backends.Permanent(err):
		return err
	}
	return backends.NotSent(err)
}

// tried is the error of the last try. If an earlier try may have been done, the answer of the last one, too,
// tells nothing of the call: the earlier one may have ended the lock, or may still come.
func tried(err error, maybeSent bool) error {
	if err != nil && maybeSent {
		return maybe{err}
	}
	return err
}

// answer is what a statement has told, as an error: see tried.
type answer struct{ error }

func (e answer) Unwrap() error { return e.error }

var errNo = errors.New("the answer to a repeated call is no")

// answered takes an answer out of err. No is no error.
func answered(err error) (told bool, _ error) {
	a, told := err.(answer)        //nolint:errorlint // one that tried has wrapped is none
	if !told || a.error == errNo { //nolint:errorlint // it is not wrapped
		return told, nil
	}
	return true, a.error
}

// maybe is an error of a call whose first try may have been done.
type maybe struct{ error }

func (maybe) Permanent() bool { return false }

func (maybe) Unsent() bool { return false }

func (e maybe) Unwrap() error { return e.error }

func (e maybe) Error() string {
	return e.error.Error() + "; a connection broke before, so the outcome is unknown"
}

// alive tells whether a connection can be used again: there was no error, or the database has told it.
func (r *reserve[C]) alive(err error) bool {
	return err == nil || errors.As(err, new(answer)) || r.classify(err) != nil && !r.idled(err)
}

// locked tells that somebody has locked the row of a statement, which did not wait, or not longer
// than it may.
func (r *reserve[C]) locked(err error) bool {
	if err == nil {
		return false
	}
	told := r.classify(err)
	return told != nil && (told.State == "55P03" || told.State == "1205" || told.State == "3572")
}

// overPool runs a statement on a connection of the pool.
type overPool struct{ r *reserve[Conn] }

func (p overPool) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	defer p.r.settle()
	return p.r.attempt(ctx, func(c Conn) error { return c.Row(ctx, statement, args, dest...) })
}
