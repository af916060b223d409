package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// fakePool is a pool of one connection, which another may use.
type fakePool struct {
	used   chan struct{}
	opened atomic.Int64 // connections beside the pool that are open
	dial   func(ctx context.Context) error
	server atomic.Int64
}

func newFakePool() *fakePool {
	p := &fakePool{used: make(chan struct{}, 1), dial: func(context.Context) error { return nil }}
	p.server.Store(1)
	return p
}

// holding is a reserve that has a connection, since a lock is held for an hour.
func holding() (*fakePool, *reserve[*fakeConn]) {
	p := newFakePool()
	r := p.reserve()
	r.hold("k", "token", time.Hour)
	r.more()
	synctest.Wait()
	return p, r
}

type fakeConn struct{ close func() }

func (c *fakeConn) Close() { c.close() }

func (p *fakePool) reserve() *reserve[*fakeConn] {
	return (&reserve[*fakeConn]{
		acquire: func(ctx context.Context) (*fakeConn, error) {
			select {
			case p.used <- struct{}{}:
				return &fakeConn{close: func() { <-p.used }}, nil
			case <-ctx.Done():
				return nil, &PoolError{Max: 1, Err: ctx.Err()}
			}
		},
		room: func() bool { return len(p.used) == 0 },
		open: func(ctx context.Context) (*fakeConn, error) {
			if err := p.dial(ctx); err != nil {
				return nil, err
			}
			p.opened.Add(1)
			return &fakeConn{close: func() { p.opened.Add(-1) }}, nil
		},
		prepare:  func(context.Context, *fakeConn) (int64, error) { return p.server.Load(), nil },
		classify: func(error) *StatementError { return nil },
	}).start()
}

// renewOn runs fn for a holder, and tells on which kind of connection it ran.
func renewOn(r *reserve[*fakeConn], limit time.Duration, fn func() error) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err = r.holder(ctx, true, func(_ context.Context, _ *fakeConn, k bool) error {
		kept = k
		return fn()
	})
	return kept, err
}

func nothing() error { return nil }

func TestAReserveHasConnectionsWhileALockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool()
		r := p.reserve()
		wantOpen := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if n := p.opened.Load(); n != want {
				t.Errorf("%d connections are open %s; want %d", n, when, want)
			}
		}
		r.hold("k", "short", time.Minute)
		time.Sleep(14 * time.Second)
		r.drop("k", "short")
		time.Sleep(2 * time.Second)
		wantOpen("after a short lock", 0)

		r.hold("k", "long", time.Minute)
		r.hold("other", "lost", time.Minute)
		time.Sleep(16 * time.Second)
		wantOpen("while a lock is held", 1)
		p.used <- struct{}{}
		if kept, err := renewOn(r, time.Second, nothing); !kept || err != nil {
			t.Errorf("with the pool used up: on a connection of the reserve %v, %v", kept, err)
		}
		r.drop("k", "long")
		time.Sleep(20 * time.Second)
		wantOpen("while another lock may be held", 1)
		time.Sleep(25*time.Second + 2*reserveIdle)
		wantOpen("after the end of the last lease", 0)
		if r.look != nil || r.late != nil || len(r.holds) != 0 {
			t.Errorf("something is looked after although no lock is held: %v %v %v", r.look, r.late, r.holds)
		}
	})
}

// Counterexample: all renewals wait for one connection that is stuck, or for one that can't be opened.
func TestAStuckConnectionOfAReserveHoldsUpNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := holding()
		p.used <- struct{}{}
		begun, stuck := make(chan struct{}), make(chan struct{})
		go func() {
			_, _ = renewOn(r, time.Hour, func() error { close(begun); <-stuck; return nil })
		}()
		<-begun
		start := time.Now()
		if kept, err := renewOn(r, time.Second, nothing); !kept || err != nil || time.Since(start) > 0 {
			t.Errorf("while a connection is stuck: kept %v, %v, after %v; want a second connection at once", kept, err, time.Since(start))
		}
		close(stuck)
		synctest.Wait()
		<-p.used
		time.Sleep(2 * time.Hour)

		p.dial = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r.hold("k", "token", time.Hour)
		p.used <- struct{}{}
		time.AfterFunc(100*time.Millisecond, func() { <-p.used })
		if kept, err := renewOn(r, time.Second, nothing); kept || err != nil {
			t.Errorf("while a connection is being opened: kept %v, %v; want one of the pool", kept, err)
		}
		r.drop("k", "token")
		time.Sleep(2 * openLimit)
	})
}

func TestAReserveFollowsTheServerThatGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := holding()
		r.shown(2)
		if kept, err := renewOn(r, time.Second, nothing); kept || err != nil {
			t.Errorf("the pool has shown another server: kept %v, %v; want a connection of the pool", kept, err)
		}
		p.server.Store(2)
		p.used <- struct{}{}
		if kept, err := renewOn(r, time.Second, nothing); !kept || err != nil {
			t.Errorf("a new connection leads there too: kept %v, %v", kept, err)
		}
		<-p.used
		r.drop("k", "token")
		time.Sleep(time.Minute)
	})
}

// Counterexample: the first try of a call was written, and the second got no connection.
func TestACallIsNotDoneOnlyIfNoTryMayHaveBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool()
		refused, denied := errors.New("connection refused"), error(stated{"42501", "permission denied"})
		aborted := error(stated{"25P02", "current transaction is aborted"})
		for _, c := range []struct {
			first, second     error // of the tries
			unsent, permanent bool
		}{
			{driver.ErrBadConn, refused, false, false},
			{backends.NotSent(errors.New("conn closed")), refused, true, false},
			{driver.ErrBadConn, denied, false, false}, // the first may have been done while it was permitted
			{backends.NotSent(errors.New("conn closed")), denied, false, true},
			{driver.ErrBadConn, aborted, false, false},
			{backends.NotSent(errors.New("conn closed")), aborted, true, false},
			{driver.ErrBadConn, answer{errNo}, false, false}, // the first may come later, or may have ended the lock
			{driver.ErrBadConn, answer{errWrongType}, false, false},
			{backends.NotSent(errors.New("conn closed")), answer{errWrongType}, false, true},
		} {
			tries := 0
			one := p.reserve()
			one.acquire = func(context.Context) (*fakeConn, error) {
				if tries++; tries > 1 && c.second == refused {
					return nil, refused
				}
				return &fakeConn{close: func() {}}, nil
			}
			err := explain(t.Context(), one.attempt(t.Context(), func(*fakeConn) error {
				if tries > 1 {
					return c.second
				}
				return c.first
			}))
			if !errors.Is(err, c.second) || backends.Unsent(err) != c.unsent || backends.Permanent(err) != c.permanent {
				t.Errorf("%v, then %v: %v, not done %v, permanent %v", c.first, c.second, err, backends.Unsent(err), backends.Permanent(err))
			}
		}
	})
}

// The first try of a renewal may have been done. Then the connections that are left can't be used.
func TestARenewalIsNotDoneOnlyIfNoTryMayHaveBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakePool().reserve()
		gone := errors.New("connection reset")
		r.prepare = func(context.Context, *fakeConn) (int64, error) { return 0, gone }
		keep := func(server int64) {
			r.have++
			r.idle <- &own[*fakeConn]{&fakeConn{close: func() {}}, server, time.Now()}
		}
		keep(1)
		keep(0)
		_, err := renewOn(r, time.Second, func() error {
			keep(0)
			return driver.ErrBadConn
		})
		if err = explain(t.Context(), err); !errors.Is(err, gone) || backends.Unsent(err) {
			t.Errorf("%v: not done %v; want that the outcome is unknown", err, backends.Unsent(err))
		}
	})
}

func TestACallWhosePoolIsUsedUpSaysSoBeforeItsCtxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePool()
		r := p.reserve()
		p.used <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.attempt(ctx, func(*fakeConn) error { return nil })
		var typed interface{ ErrorType() string }
		if ctx.Err() != nil || !backends.Unsent(err) || !errors.As(err, &typed) || typed.ErrorType() != "pool_exhausted" {
			t.Errorf("%v, ctx %v; want pool_exhausted, not done, and before the end of ctx", err, ctx.Err())
		}
	})
}

func TestTheReserveAndThePoolAreNotBothAskedIfOneOfThemHasAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		renews, used bool
		asked        int // times that the pool is asked
	}{
		"a renewal, room in the pool": {true, false, 0},
		"a renewal, the pool is full": {true, true, 0},
		"a release, room in the pool": {false, false, 1},
		"a release, the pool is full": {false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := holding()
				asked, acquire := 0, r.acquire
				r.acquire = func(ctx context.Context) (*fakeConn, error) { asked++; return acquire(ctx) }
				if c.used {
					p.used <- struct{}{}
				}
				err := r.holder(t.Context(), c.renews, func(_ context.Context, _ *fakeConn, kept bool) error {
					if kept != (c.asked == 0) {
						t.Errorf("on a connection of the reserve: %v", kept)
					}
					return nil
				})
				synctest.Wait()
				if err != nil || asked != c.asked {
					t.Errorf("%v; the pool was asked %d times; want %d", err, asked, c.asked)
				}
				r.drop("k", "token")
				time.Sleep(2 * openLimit)
			})
		})
	}
}

// Counterexample: a release asks the pool first, which can open no connection.
func TestAReleaseUsesTheReserveWhenThePoolFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := holding()
		full := errors.New("too many clients already")
		r.acquire = func(context.Context) (*fakeConn, error) { return nil, full }
		release := func() (kept bool, err error) {
			err = r.holder(t.Context(), false, func(_ context.Context, _ *fakeConn, k bool) error { kept = k; return nil })
			return kept, err
		}
		if kept, err := release(); !kept || err != nil {
			t.Errorf("on a connection of the reserve %v, %v; want it there", kept, err)
		}
		r.drop("k", "token")
		time.Sleep(time.Minute)
		if _, err := release(); !errors.Is(err, full) || !backends.Unsent(err) {
			t.Errorf("without a reserve: %v; want the error of the pool, which says that nothing was sent", err)
		}
	})
}

// idledError is what PostgreSQL says on a connection that it has closed because it was idle.
type idledError struct{}

func (idledError) Error() string    { return "terminating connection due to idle-session timeout" }
func (idledError) SQLState() string { return "57P05" }

func TestACallGoesOnPastConnectionsThatTheServerHasEndedForTheirIdleness(t *testing.T) {
	calls := map[string]func(r *reserve[*fakeConn], fn func() error) error{
		"attempt": func(r *reserve[*fakeConn], fn func() error) error {
			return r.attempt(t.Context(), func(*fakeConn) error { return fn() })
		},
		"holder": func(r *reserve[*fakeConn], fn func() error) error {
			return r.holder(t.Context(), false, func(context.Context, *fakeConn, bool) error { return fn() })
		},
	}
	lost := errors.New("connection reset")
	for _, c := range []struct {
		name   string
		ended  int   // connections of the pool that the server has ended
		then   error // of the statement on the next one
		tries  int
		unsent bool
	}{
		{"a few", 7, nil, 8, true},
		{"all but the last try", idledTries - 1, nil, idledTries, true},
		{"all", idledTries + 1, nil, idledTries, true},
		{"a few, and one that breaks", 7, lost, 8, false},
	} {
		for name, call := range calls {
			t.Run(name+", "+c.name, func(t *testing.T) {
				tries, closed := 0, 0
				r := newFakePool().reserve()
				r.open, r.claim, r.unclaim = nil, func() bool { return true }, func() {} // it keeps what is alive
				r.classify = postgresqlError
				r.acquire = func(context.Context) (*fakeConn, error) {
					return &fakeConn{close: func() { closed++ }}, nil
				}
				err := explain(t.Context(), call(r, func() error {
					if tries++; tries <= c.ended {
						return idledError{}
					}
					return c.then
				}))
				if failed := c.ended >= c.tries || c.then != nil; tries != c.tries || (err != nil) != failed {
					t.Errorf("%v after %d tries; want %d", err, tries, c.tries)
				}
				if bad := min(c.ended, c.tries); c.then == nil && (closed != bad || r.have != c.tries-bad) {
					t.Errorf("%d connections were closed, and %d are kept; want those closed that the server has ended", closed, r.have)
				}
				if err != nil && (backends.Unsent(err) != c.unsent || errors.As(err, new(maybe))) {
					t.Errorf("%v: not done %v; want %v, and no doubt of an earlier try", err, backends.Unsent(err), c.unsent)
				}
			})
		}
	}
	t.Run("then the pool has none", func(t *testing.T) {
		tries := 0
		r := newFakePool().reserve()
		r.classify = postgresqlError
		r.acquire = func(context.Context) (*fakeConn, error) {
			if tries++; tries > 1 {
				return nil, lost
			}
			return &fakeConn{close: func() {}}, nil
		}
		err := explain(t.Context(), calls["attempt"](r, func() error { return idledError{} }))
		if !errors.Is(err, lost) || !backends.Unsent(err) {
			t.Errorf("%v: not done %v; want that nothing was sent", err, backends.Unsent(err))
		}
	})
}

// lockedRow is what a server says that does not wait for a row.
var lockedRow = stated{"55P03", "canceling statement due to lock timeout"}

func TestARenewalWhoseRowIsLockedIsRepeatedAndHoldsUpNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		free, room time.Duration // when the row is free, and when the pool has a connection; 0: never
		after      time.Duration
		kept       bool // in the end, on a connection of the reserve
		tries      int  // one at once, and after 20, 60, 140, 300, 620, 1120, 1620 ms
		fails      bool
	}{
		"the pool has no connection":                  {time.Second, 0, 1120 * time.Millisecond, true, 7, false},
		"the pool has a connection, where it waits":   {time.Second, 200 * time.Millisecond, time.Second, false, 5, false},
		"neither the row nor a connection comes free": {0, 0, 2*time.Second - answerTime, true, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := holding()
				r.classify = postgresqlError
				p.used <- struct{}{}
				free := make(chan struct{})
				if c.free > 0 {
					time.AfterFunc(c.free, func() { close(free) })
				}
				if c.room > 0 {
					time.AfterFunc(c.room, func() { <-p.used })
				}
				start, tries, last := time.Now(), 0, false
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					ended <- r.holder(ctx, true, func(_ context.Context, _ *fakeConn, kept bool) error {
						tries, last = tries+1, kept
						if !kept {
							<-free
						}
						select {
						case <-free:
							return nil
						default:
							return lockedRow
						}
					})
				}()
				for range 10 {
					time.Sleep(33 * time.Millisecond) // never just when a try is due
					began := time.Now()
					if kept, err := renewOn(r, time.Second, nothing); !kept || err != nil || time.Since(began) > 0 {
						t.Errorf("another renewal: kept %v, %v, after %v; want it at once", kept, err, time.Since(began))
					}
				}
				err := explain(ctx, <-ended)
				if (err != nil) != c.fails || last != c.kept || tries != c.tries || time.Since(start) != c.after {
					t.Errorf("%v after %d tries and %v, kept %v; want %d, %v, %v", err, tries, time.Since(start), last, c.tries, c.after, c.kept)
				}
				if c.fails && (!backends.Unsent(err) || !errors.Is(err, lockedRow) || !errors.As(err, new(*PoolError))) {
					t.Errorf("%v: not done %v; want that nothing was done, what the row said, and what the pool", err, backends.Unsent(err))
				}
				r.drop("k", "token")
				time.Sleep(2 * openLimit)
				if n := p.opened.Load(); n != 0 {
					t.Errorf("%d connections are open in the end", n)
				}
			})
		})
	}
}

// Counterexample: a try of the repetition was written, and the connection broke. The next one is
// told that nothing was done, of itself alone.
func TestARenewalWhoseRowIsLockedIsNotDoneOnlyIfNoTryMayHaveBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := holding()
		r.classify = postgresqlError
		p.used <- struct{}{}
		tries := 0
		_, err := renewOn(r, 2*time.Second, func() error {
			if tries++; tries == 2 {
				return driver.ErrBadConn
			}
			return lockedRow
		})
		if err = explain(t.Context(), err); tries < 3 || !errors.Is(err, lockedRow) || backends.Unsent(err) {
			t.Errorf("%v after %d tries: not done %v; want that the outcome is unknown", err, tries, backends.Unsent(err))
		}
		r.drop("k", "token")
		time.Sleep(2 * openLimit)
	})
}

// Counterexample: the driver closes the connection of a renewal that is cancelled, and the
// application takes its place in the pool.
func TestAStatementOfTheReserveHasAMomentToBeAnsweredAfterTheEndOfItsCall(t *testing.T) {
	for answer, want := range map[time.Duration]int64{lateTime - time.Millisecond: 1, lateTime + time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			p, r := holding()
			r.classify = postgresqlError
			p.used <- struct{}{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			err := r.holder(ctx, true, func(ctx context.Context, _ *fakeConn, _ bool) error {
				select {
				case <-time.After(time.Second + answer):
					return lockedRow
				case <-ctx.Done():
					return driver.ErrBadConn // as pgx does for database/sql
				}
			})
			if err = explain(ctx, err); !errors.Is(err, context.DeadlineExceeded) || backends.Unsent(err) || time.Since(start) != time.Second {
				t.Errorf("%v after %v: not done %v; want it at the end of ctx, and that the outcome is unknown", err, time.Since(start), backends.Unsent(err))
			}
			time.Sleep(lateTime)
			synctest.Wait()
			if n := p.opened.Load(); n != want {
				t.Errorf("an answer %v after the end of the call: %d connections are left; want %d", answer, n, want)
			}
			r.drop("k", "token")
			time.Sleep(2 * openLimit)
		})
	}
}
