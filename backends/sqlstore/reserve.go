package sqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"
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
)

func (r *reserve[C]) start() *reserve[C] {
	r.idle = make(chan *own[C], reserveMost)
	r.holds = map[string]time.Time{}
	return r
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
