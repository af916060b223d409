package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A reserve has up to two connections for renewals and releases while locks are held, so that these do
// not wait for the pool when the transactions of the application use all of it.
//
// If open is not nil, the connections are opened beside the pool. Otherwise connections that came from
// the pool are kept, if the pool has enough of them.
type reserve[C interface{ Close() }] struct {
	acquire func(ctx context.Context) (C, error) // one of the pool, for one call
	room    func() bool                          // the pool has a connection for a call at once, as far as can be seen
	open    func(ctx context.Context) (C, error)
	prepare func(ctx context.Context, c C) (server int64, err error) // tells which server is behind a connection
	// claim asks whether one more connection of the pool may be kept, and unclaim gives that back.
	claim   func() bool
	unclaim func()

	classify func(error) *StatementError

	idle chan *own[C]

	mu     sync.Mutex
	have   int                  // connections: idle, in use, and being opened
	holds  map[string]time.Time // until when they live at most
	latest time.Time            // of holds
	used   time.Time            // the last use of a connection
	seen   int64                // the server that the pool has shown last
	look   *time.Timer          // nil: nothing is to be looked after
	late   *time.Timer          // opens the first connection
	lateAt time.Time
}

// own is a connection of a reserve.
type own[C any] struct {
	conn   C
	server int64 // 0: it is not prepared
	since  time.Time
}

const (
	reserveMost  = 2           // one may be stuck
	reserveDelay = 4           // the first is opened after this part of the TTL: before the first renewal, and not for short locks
	reserveIdle  = time.Second // how long a connection is idle when no lock is held
	reserveAge   = 10 * time.Minute

	// openLimit is the time to open and prepare a connection. It is apart from the limit of a call, which
	// another connection may serve meanwhile.
	openLimit = 10 * time.Second

	answerTime = 100 * time.Millisecond // for an error to reach the caller of a call whose ctx ends
	lateTime   = 500 * time.Millisecond // after the end of the ctx, for an answer on a connection of the reserve

	// how long a call whose row is locked leaves the reserve to others, at first and at most
	leastPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond

	reserveTries = 3   // connections that turn out to be dead before anything was done
	idledTries   = 100 // those that the server has ended for their idleness: a pool may be full of them
)

func (r *reserve[C]) start() *reserve[C] {
	r.idle = make(chan *own[C], reserveMost)
	r.holds = map[string]time.Time{}
	return r
}

// attempt runs fn, once, on a connection of the pool.
func (r *reserve[C]) attempt(ctx context.Context, fn func(c C) error) error {
	c, err := r.fromPool(ctx)
	return r.attemptOn(ctx, c, err, fn)
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

func tried(err error, maybeSent bool) error {
	if err != nil && maybeSent {
		return maybe{err}
	}
	return err
}

// maybe is an error of a call whose first try may have been done.
type maybe struct{ error }

func (maybe) Permanent() bool { return false }
func (maybe) Unsent() bool    { return false }
func (e maybe) Unwrap() error { return e.error }
func (e maybe) Error() string {
	return e.error.Error() + "; a connection broke before, so the outcome is unknown"
}

// alive tells whether a connection can be used again: there was no error, or the database has told it.
func (r *reserve[C]) alive(err error) bool {
	return err == nil || r.classify(err) != nil && !r.idled(err)
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

// take returns a connection of the reserve, or one of the pool.
func (r *reserve[C]) take(ctx context.Context, first bool) (o *own[C], c C, err error) {
	room := r.room()
	if first || !room {
		if o := r.get(); o != nil {
			return o, c, nil
		}
	}
	if !room {
		r.more()
	}
	if !first && room || !r.any() {
		c, err = r.fromPool(ctx)
		if err != nil && ctx.Err() == nil { // such as too many connections of the server
			o = r.get()
		}
		if o != nil {
			return o, c, nil
		}
		return nil, c, err
	}
	// both are waited for
	asked, leave := r.ask(ctx)
	for {
		select {
		case o := <-r.idle:
			if !r.fit(o) {
				r.back(o, false)
				continue
			}
			leave()
			return o, c, nil
		case got := <-asked:
			return nil, got.c, got.err
		}
	}
}

// get returns an idle connection; nil: there is none.
func (r *reserve[C]) get() *own[C] {
	for {
		select {
		case o := <-r.idle:
			if r.fit(o) {
				return o
			}
			r.back(o, false)
		default:
			return nil
		}
	}
}

// fit tells whether a connection leads to the server that grants locks now, and is not old: behind one
// address there may be another server since.
func (r *reserve[C]) fit(o *own[C]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (o.server == 0 || r.seen == 0 || o.server == r.seen) && (r.open == nil || time.Since(o.since) < reserveAge)
}

func (r *reserve[C]) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.have > 0
}

// shown notes which server has answered through the pool: that is where locks are granted.
func (r *reserve[C]) shown(server int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = server
}

// ready prepares a connection before its first use.
func (r *reserve[C]) ready(ctx context.Context, o *own[C]) error {
	if o.server != 0 {
		return nil
	}
	server, err := r.prepare(ctx, o.conn)
	if err != nil {
		return err
	}
	o.server = server
	if !r.fit(o) {
		return errOtherServer
	}
	return nil
}

var errOtherServer = fmt.Errorf("the connection for renewals leads to another server than the pool: %w", driver.ErrBadConn)

// back gives a connection of the reserve back.
func (r *reserve[C]) back(o *own[C], alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = time.Now()
	if alive {
		r.idle <- o // there is room for all
		r.settleLocked()
		return
	}
	r.lessLocked()
	go o.conn.Close()
}

func (r *reserve[C]) lessLocked() {
	r.have--
	if r.open == nil {
		r.unclaim()
	}
}

// keep takes a connection that the pool has given, or closes it. The call that follows, hold or settle,
// decides whether it stays.
func (r *reserve[C]) keep(c C) {
	if r.open == nil {
		r.mu.Lock()
		if r.have < reserveMost && r.claim() {
			r.have++
			r.idle <- &own[C]{conn: c, since: time.Now()}
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
	c.Close()
}

// more opens one more connection behind the caller, if one is missing.
func (r *reserve[C]) more() {
	if r.open == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have >= reserveMost {
		return
	}
	r.have++
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), openLimit)
		defer cancel()
		c, err := r.open(ctx)
		if err != nil {
			r.mu.Lock()
			r.have--
			r.mu.Unlock()
			return
		}
		o := &own[C]{conn: c, since: time.Now()}
		r.back(o, r.ready(ctx, o) == nil)
	}()
}

// hold notes a lock that is held for at most ttl from now.
func (r *reserve[C]) hold(key, token string, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := time.Now().Add(ttl)
	r.holds[key+"\x00"+token] = until
	if until.After(r.latest) {
		r.latest = until
	}
	if due := time.Now().Add(ttl / reserveDelay); r.open != nil && r.have == 0 && (r.late == nil || due.Before(r.lateAt)) {
		if r.late != nil {
			r.late.Stop()
		}
		r.lateAt, r.late = due, time.AfterFunc(ttl/reserveDelay, r.openFirst)
	}
	r.settleLocked()
}

func (r *reserve[C]) openFirst() {
	r.mu.Lock()
	r.late = nil
	wanted := len(r.holds) > 0 && r.have == 0
	r.mu.Unlock()
	if wanted {
		r.more()
	}
}

// drop notes that a lock is held no longer.
func (r *reserve[C]) drop(key, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holds, key+"\x00"+token)
	r.settleLocked()
}

// holding tells whether a lock is held.
func (r *reserve[C]) holding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holds) > 0
}

// settle gives up connections that nobody needs.
func (r *reserve[C]) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settleLocked()
}

func (r *reserve[C]) settleLocked() {
	now := time.Now()
	next := r.latest
	if len(r.holds) == 0 {
		if r.late != nil {
			r.late.Stop()
			r.late = nil
		}
		next = r.used
		if r.open != nil {
			next = next.Add(reserveIdle)
		}
		if !next.After(now) {
			r.closeIdle()
		}
		if r.have == 0 {
			if r.look != nil {
				r.look.Stop()
				r.look = nil
			}
			return
		}
	}
	if r.look == nil {
		r.look = time.AfterFunc(max(next.Sub(now), time.Millisecond), r.again)
	} else if len(r.holds) == 0 {
		r.look.Reset(max(next.Sub(now), reserveIdle))
	}
}

// again looks after holds that have ended without a release.
func (r *reserve[C]) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = nil
	now := time.Now()
	for id, until := range r.holds {
		if !until.After(now) {
			delete(r.holds, id)
		}
	}
	r.settleLocked()
}

func (r *reserve[C]) closeIdle() {
	for {
		select {
		case o := <-r.idle:
			r.lessLocked()
			go o.conn.Close()
		default:
			return
		}
	}
}

// overPool runs a statement on a connection of the pool.
type overPool struct{ r *reserve[Conn] }

func (p overPool) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	defer p.r.settle()
	return p.r.attempt(ctx, func(c Conn) error { return c.Row(ctx, statement, args, dest...) })
}
