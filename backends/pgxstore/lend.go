package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lockstep-go/lockstep/backends"
)

// A lender has the connection that listens, if it can be lent to calls of the store.
type lender struct{ at atomic.Pointer[session] }

func (l *lender) session() *session {
	if l == nil {
		return nil
	}
	return l.at.Load()
}

// A session is a connection that listens. A call may borrow it: then messages wait until the call is done.
type session struct {
	conn     *pgx.Conn
	answered time.Time     // when the server has answered last
	back     chan struct{} // from a call that is done
	until    time.Time     // it is replaced then: behind one address there may be another server. Zero: never
	quiet    func()        // see listens; nil: there is nothing to do

	mu       sync.Mutex
	queue    []chan bool // calls that want the connection
	over     bool
	awaiting bool // a message: a call may interrupt that
	asked    bool // a call has, and may have left since
}

const (
	// lendLimit is the time for a call to get the connection, before it takes one of the pool.
	lendLimit = time.Second
	// lendMost is how many calls wait for the connection. More than these are no business of a program that
	// only waits for a lock.
	lendMost = 2
	// lendUntested is how long the server may have been silent when the connection is lent.
	lendUntested = time.Second
)

// borrow tells whether the caller has the connection, until it calls giveBack. With free, it is false if
// another call has it.
func (s *session) borrow(ctx context.Context, free bool) bool {
	turn := make(chan bool, 1)
	if !s.ask(turn, free) {
		return false
	}
	limit := time.NewTimer(lendLimit)
	defer limit.Stop()
	select {
	case got := <-turn:
		return got
	case <-limit.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.queue, turn)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it is about to come
		go func() {
			if <-turn {
				s.giveBack()
			}
		}()
	}
	return false
}

func (s *session) ask(turn chan bool, free bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.queue) >= lendMost || free && (!s.awaiting || len(s.queue) > 0) {
		return false
	}
	s.queue = append(s.queue, turn)
	if s.awaiting {
		s.asked = true
		_ = s.conn.PgConn().Conn().SetReadDeadline(time.Now()) // pgx keeps a connection whose read was late
	}
	return true
}

func (s *session) giveBack() { s.back <- struct{}{} }

// end refuses the calls that want the connection.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, turn := range s.queue {
		turn <- false
	}
	s.queue = nil
}

// run hears messages and lends the connection, until ctx is done or the connection is lost.
func (s *session) run(ctx context.Context, heard func(*pgconn.Notification)) error {
	looked := time.Now()
	for s.until.IsZero() || time.Now().Before(s.until) {
		if s.quiet != nil && time.Since(looked) >= pingInterval {
			looked = time.Now()
			s.quiet()
		}
		lent, err := s.lend(ctx, heard)
		if err == nil && lent {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if lent { // another call may want it
			continue
		}
		note, err := s.await(ctx)
		switch {
		case err != nil:
			return err
		case note != nil:
			heard(note)
		}
	}
	return errOld
}

var errOld = errors.New("the connection is as old as one of the pool may be")

// lend gives the connection to the next call that wants it.
func (s *session) lend(ctx context.Context, heard func(*pgconn.Notification)) (lent bool, err error) {
	turn := s.next()
	if turn == nil {
		return false, nil
	}
	if time.Since(s.answered) > lendUntested {
		if err := s.ping(ctx, lendUntested); err != nil {
			turn <- false
			return false, err
		}
	}
	turn <- true
	<-s.back
	if c := s.conn.PgConn(); c.IsClosed() || c.IsBusy() || c.TxStatus() != 'I' {
		return false, errBroken
	}
	s.answered = time.Now()
	s.received(heard)
	return true, nil
}

var errBroken = errors.New("a call has broken the connection")

// next is the next call that wants the connection. If there is none, a call may interrupt what follows.
func (s *session) next() (turn chan bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.awaiting = true
		return nil
	}
	turn, s.queue = s.queue[0], s.queue[1:]
	return turn
}

// received hears the messages that came with the answers to calls.
func (s *session) received(heard func(*pgconn.Notification)) {
	for {
		note, _ := s.conn.WaitForNotification(past)
		if note == nil {
			return
		}
		heard(note)
	}
}

// past is a ctx that has ended.
var past = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// await returns a message. It is nil if none came and the connection lives, or if a call wants the
// connection.
func (s *session) await(ctx context.Context) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	note, err := s.conn.WaitForNotification(quiet)
	asked := s.stopAwaiting()
	if err == nil {
		s.answered = time.Now()
		return note, nil
	}
	if ctx.Err() != nil || s.conn.IsClosed() || quiet.Err() == nil && !asked {
		return nil, err
	}
	if asked {
		return nil, nil
	}
	return nil, s.ping(ctx, pingInterval)
}

func (s *session) stopAwaiting() (asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.awaiting, s.asked = s.asked, false, false
	_ = s.conn.PgConn().Conn().SetReadDeadline(time.Time{})
	return asked
}

func (s *session) ping(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.conn.Ping(ctx)
	s.answered = time.Now()
	return err
}

// lent is the connection that listens, while a call has it.
type lent struct {
	*session

	pool shared
	done bool
}

// Row implements sqlstore.Conn. The connection waits for a row for a moment only, and has a second for a
// statement, since others want it too. Then the statement has done nothing, and it runs again on a
// connection of the pool.
func (l *lent) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	err := conn{Conn: l.conn}.Row(ctx, statement, args, dest...)
	told, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || told.Code != lockNotAvailable && told.Code != queryCanceled {
		return err
	}
	l.Close()
	c, err := l.pool.acquire(ctx)
	if err != nil {
		return backends.NotSent(fmt.Errorf("%w, and then %w", told, err))
	}
	defer c.Close()
	return c.Row(ctx, statement, args, dest...)
}

const (
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
	lentLimit        = "1s"
)

func (l *lent) Close() {
	if !l.done {
		l.done = true
		l.giveBack()
	}
}
