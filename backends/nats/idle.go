package nats

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	testAfter = 5 * time.Second // of idling: no network that people use forgets so soon
	testLimit = time.Second     // for the answer
)

// rests knows how long no request of a store was answered.
type rests struct {
	testing chan struct{} // full while a call tests the connection

	mu   sync.Mutex
	last time.Time
}

func newRests() rests { return rests{testing: make(chan struct{}, 1), last: time.Now()} }

func (r *rests) heard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
}

func (r *rests) long() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.last) >= testAfter
}

// wakeUp tests the connection before a grant, if it was idle for over five seconds: a load balancer or NAT
// may have forgotten it without a reset, and the client library finds that after minutes. A connection on
// which nothing comes for a second is made again.
func (s *Store) wakeUp(ctx context.Context) error {
	if !s.rests.long() {
		return nil
	}
	select {
	case s.rests.testing <- struct{}{}:
		defer func() { <-s.rests.testing }()
	case <-ctx.Done():
		return s.over(ctx)
	}
	if !s.rests.long() || s.conn.Status() != nats.CONNECTED { // the request says that it has no connection
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	before := s.conn.Stats().InBytes
	err := s.conn.FlushWithContext(limited)
	switch {
	case err == nil:
		s.rests.heard()
	case ctx.Err() != nil:
		return s.over(ctx)
	case s.conn.Stats().InBytes == before && s.conn.Opts.AllowReconnect:
		s.connectAgain(ctx)
	}
	return nil
}

// connectAgain makes the connection again, and waits for it.
func (s *Store) connectAgain(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	made := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(made)
	if s.conn.ForceReconnect() != nil {
		return
	}
	select {
	case status := <-made:
		if status == nats.CONNECTED {
			s.rests.heard()
		}
	case <-limited.Done():
	}
}
