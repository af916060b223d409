package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"sync"
	"time"
)

const (
	testAfter = 5 * time.Second // of idling
	testLimit = time.Second     // for the answer
)

// living takes a connection that leads to a server. A load balancer or NAT forgets idle connections
// without a reset, and no driver finds that within a limit. So one that the store has not used for
// five seconds is tested first. If it is silent, the others that are idle are tested together, or
// each would cost a second.
func (p databasePool) living(ctx context.Context) (*sql.Conn, error) {
	if p.seen == nil {
		return p.db.Conn(ctx)
	}
	for tests := p.db.Stats().Idle; tests > 0 && p.db.Stats().Idle > 0; tests-- {
		c, silent, err := p.tested(ctx)
		if c != nil || err != nil {
			return c, err
		}
		if silent {
			p.testIdle(ctx)
		}
	}
	c, err := p.db.Conn(ctx) // a new one, or one that another call has just given back
	if err == nil {
		p.seen.note(driverConn(c))
	}
	return c, err
}

// tested takes a connection of the pool and tests it. The pool loses one that is dead, and then
// there is neither a connection nor an error.
func (p databasePool) tested(ctx context.Context) (_ *sql.Conn, silent bool, _ error) {
	limited, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	c, err := p.db.Conn(limited) // some drivers test it themselves, without a limit
	switch {
	case err == nil:
	case limited.Err() == nil: // the pool has tried to open one
		return nil, false, err
	default:
		return nil, true, ctx.Err()
	}
	is := driverConn(c)
	if !p.seen.lately(is) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = c.PingContext(limited)
		}()
		select {
		case <-done:
			if err != nil {
				drop(c)
				return nil, limited.Err() != nil, ctx.Err()
			}
		case <-limited.Done():
			go func() { // lib/pq waits for minutes, and the pool keeps the room meanwhile
				<-done
				drop(c)
			}()
			return nil, true, ctx.Err()
		}
	}
	p.seen.note(is)
	return c, false, nil
}

// drop gives a connection back that the pool shall not use again.
func drop(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}

// testIdle tests all connections that are idle, unless another call does.
func (p databasePool) testIdle(ctx context.Context) {
	if !p.seen.testing.TryLock() {
		return
	}
	defer p.seen.testing.Unlock()
	idle := p.db.Stats().Idle
	found := make(chan *sql.Conn, idle)
	for range idle {
		go func() {
			c, _, _ := p.tested(ctx)
			found <- c
		}()
	}
	for range idle {
		if c := <-found; c != nil {
			defer func() { _ = c.Close() }() // not before the last one is tested
		}
	}
}

// seen remembers the connections that a store used in the last five seconds. It has their addresses,
// which keep none in memory. One that is at the address of an earlier one was opened after that use,
// so it needs no test either.
type seen struct {
	testing sync.Mutex // held by a call that tests all

	mu     sync.Mutex
	at     map[uintptr]time.Time // by the connection of the driver
	pruned time.Time
}

// driverConn identifies a connection. It is 0 if the driver's value is no pointer.
func driverConn(c *sql.Conn) (is uintptr) {
	_ = c.Raw(func(conn any) error {
		if v := reflect.ValueOf(conn); v.Kind() == reflect.Pointer {
			is = v.Pointer()
		}
		return nil
	})
	return is
}

// note notes a connection that leads to a server.
func (s *seen) note(is uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.pruned) >= testAfter {
		late := s.at
		s.at, s.pruned = map[uintptr]time.Time{}, now
		for other, at := range late {
			if now.Sub(at) < testAfter {
				s.at[other] = at
			}
		}
	}
	if is != 0 {
		s.at[is] = now
	}
}

// lately tells whether a connection was noted in the last five seconds.
func (s *seen) lately(is uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.at[is]
	return ok && time.Since(at) < testAfter
}
