package natsstore

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	testAfter = 5 * time.Second // of idling
	testSteps = 10              // for the answer, each of testStep
	testStep  = time.Second / testSteps
)

// rests knows how long no request of a store was answered, and whether a grant may still be on its
// way. An answer shows that the server has what was sent on the connection before its request.
type rests struct {
	testing chan struct{} // full while a call tests the connection

	mu     sync.Mutex
	last   time.Time
	sent   uint64 // requests so far
	grants int    // calls that are under way
	doubt  uint64 // requests that were sent when a grant failed; 0: a later one was answered since
}

func newRests() rests { return rests{testing: make(chan struct{}, 1), last: time.Now()} }

// request returns what to call with the answer.
func (r *rests) request() (heard func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	n := r.sent
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.last = time.Now(); n > r.doubt {
			r.doubt = 0
		}
	}
}

// grant returns what to call at the end of a grant.
func (r *rests) grant() (end func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants++
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.grants--; err != nil {
			r.doubt = r.sent
		}
	}
}

func (r *rests) long() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last) >= testAfter
}

// quiet tells that nothing was answered for long, and that no grant is on its way.
func (r *rests) quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last) >= testAfter && r.grants == 0 && r.doubt == 0
}

// wakeUp tests the connection if it was idle for over five seconds: a load balancer or NAT may have
// forgotten it without a reset, and the client library finds that after minutes. A connection on
// which nothing comes for a second is made again, but not while a grant may be on its way: what is sent
// to clean up after that grant must stay behind it.
func (s *Store) wakeUp(ctx context.Context) error {
	if d, _ := s.first.doubted(); d != nil || !s.rests.long() {
		return nil
	}
	select {
	case s.rests.testing <- struct{}{}:
		defer func() { <-s.rests.testing }()
	case <-ctx.Done():
		return s.over(ctx)
	}
	if !s.rests.long() {
		return nil
	}
	before, connected := s.received(ctx)
	switch {
	case before < 0 && ctx.Err() != nil:
		return s.over(ctx)
	case before < 0:
		s.late()
		return nil
	case !connected: // the request says that it has no connection
		return nil
	}
	heard := s.rests.request()
	late, err := ping(ctx, s.conn)
	switch {
	case err == nil:
		heard()
	case ctx.Err() != nil:
		return s.over(ctx)
	case late:
		now, _ := s.received(ctx)
		switch {
		case now == before && s.mayConnectAgain() && s.rests.quiet():
			s.connectAgain(ctx)
		case now == before || now < 0:
			s.late()
		}
	}
	return nil
}

// received counts the messages that have come over the connection. It is negative if the connection does
// not tell.
func (s *Store) received(ctx context.Context) (n int64, connected bool) {
	type state struct {
		n         int64
		connected bool
	}
	told := make(chan state, 1)
	if !soon(ctx, func() { told <- state{int64(s.conn.Stats().InMsgs), s.conn.Status() == nats.CONNECTED} }) {
		return -1, false
	}
	now := <-told
	return now.n, now.connected
}

// soon runs what asks a connection for anything. That waits until it takes more bytes, for up to a minute
// (nats.FlusherTimeout). It is false after a second, or when ctx has ended: then do goes on alone.
func soon(ctx context.Context, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for range testSteps {
		select {
		case <-done:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(testStep):
		}
	}
	return false
}

// ping waits for the answer to a PING. It counts steps instead of the time: a process that stood
// still for a second must have the time to read the answer.
func ping(ctx context.Context, conn *nats.Conn) (late bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit) // the client library asks for a deadline
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- conn.FlushWithContext(ctx) }()
	for range testSteps {
		select {
		case err := <-answered:
			return false, err
		case <-time.After(testStep):
		}
	}
	select {
	case err := <-answered:
		return false, err
	default:
		return true, context.DeadlineExceeded
	}
}

// mayConnectAgain is false if the options of the connection would close it for good.
func (s *Store) mayConnectAgain() bool {
	return s.conn.Opts.AllowReconnect && s.conn.Opts.MaxReconnect != 0
}

// connectAgain makes the connection again, and waits for it.
func (s *Store) connectAgain(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		made := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
		defer s.conn.RemoveStatusListener(made)
		if s.conn.ForceReconnect() != nil {
			return
		}
		select {
		case status := <-made:
			if status == nats.CONNECTED {
				s.rests.request()()
			}
		case <-limited.Done():
		}
	}()
	select {
	case <-ended:
	case <-limited.Done():
	}
}
