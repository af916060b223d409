package rueidisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

func (e executor) Subscribe(ctx context.Context) driver.Subscription {
	return &subscription{executor: e, ctx: ctx, news: make(chan struct{}, 1)}
}

// subscription has a connection of the pool for blocking commands, and never gives it back alive.
// rueidis gives the answer to a request to its sender, and a message to a hook. Here both become
// events. A goroutine sends, while there is something to send: all that has come since,
// in one round trip.
type subscription struct {
	executor
	ctx  context.Context
	news chan struct{} // holds one note that something has come

	conn client.DedicatedClient // nil before the first request
	lost <-chan error           // ends with the connection
	over atomic.Bool            // Close was called

	mu       sync.Mutex
	requests []request // not sent yet
	sending  bool
	events   []event
	failed   error // after the events
}

type request struct {
	answer driver.EventKind
	name   string // of the channel
}

type event struct {
	driver.Event
	err error
}

func (s *subscription) Subscribe(channel string) error {
	return s.request(request{driver.EventSubscribed, channel})
}

func (s *subscription) Unsubscribe(channel string) error {
	return s.request(request{driver.EventUnsubscribed, channel})
}

func (s *subscription) Ping() error { return s.request(request{answer: driver.EventPong}) }

func (s *subscription) request(r request) error {
	if s.conn == nil {
		if err := s.open(); err != nil {
			return s.unopened(s.ctx, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	s.requests = append(s.requests, r)
	if !s.sending {
		s.sending = true
		go s.send()
	}
	return nil
}

// open takes up to Dialer.Timeout for each phase. A cluster's client connects later, with the first request.
func (s *subscription) open() error {
	own, err := dedicate(s.ctx, s.left, s.client)
	if err != nil {
		return err
	}
	s.conn = own.c // Close releases it as well
	s.lost = s.conn.SetPubSubHooks(client.PubSubHooks{OnMessage: func(m client.PubSubMessage) {
		s.add(event{Event: driver.Event{Kind: driver.EventMessage, Channel: m.Channel, Payload: m.Message}})
	}})
	select {
	case err := <-s.lost:
		return because(err)
	default:
		return nil
	}
}

func because(err error) error {
	if err == nil {
		return client.ErrClosing
	}
	return err
}

func (s *subscription) send() {
	for {
		batch := s.next()
		if batch == nil {
			return
		}
		commands := make([]client.Completed, len(batch))
		for i, r := range batch {
			switch r.answer {
			case driver.EventSubscribed:
				commands[i] = s.conn.B().Subscribe().Channel(r.name).Build()
			case driver.EventUnsubscribed:
				commands[i] = s.conn.B().Unsubscribe().Channel(r.name).Build()
			default:
				commands[i] = s.conn.B().Ping().Build()
			}
		}
		for i, result := range s.conn.DoMulti(s.ctx, commands...) {
			if !s.answered(batch[i], result) {
				return
			}
		}
	}
}

// next takes what can be sent together; before RESP3 a ping can't be with anything else.
func (s *subscription) next() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.requests) && (n == 0 || s.requests[n].answer != driver.EventPong && s.requests[0].answer != driver.EventPong) {
		n++
	}
	batch := s.requests[:n:n]
	s.requests = s.requests[n:]
	s.sending = n > 0
	if n == 0 {
		return nil
	}
	return batch
}

// answered tells whether the connection is still good.
func (s *subscription) answered(r request, result client.RedisResult) bool {
	_, err := decode(result)
	refused := (*driver.ReplyError)(nil)
	switch {
	case err == nil:
		s.add(event{Event: driver.Event{Kind: r.answer, Channel: r.name}})
		return true
	case errors.As(err, &refused):
		s.add(event{err: refused})
		return true
	}
	s.fail(s.reason(err))
	return false
}

// reason is why the connection has ended: nothing is lost if that was a refresh of credentials. A client that is
// closed says the same of all its connections.
func (s *subscription) reason(err error) error {
	if s.over.Load() {
		return errEnded
	}
	return s.unopened(s.ctx, err)
}

var errEnded = errors.New("nobody waits any more")

func (s *subscription) add(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	s.note()
}

func (s *subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return
	}
	if refused := (*driver.ReplyError)(nil); errors.As(err, &refused) { // would be taken for the answer to a request, each time
		s.events = append(s.events, event{err: refused})
		err = errOpening
	}
	s.failed = err
	s.note()
}

var errOpening = errors.New("the server refuses the connection for wake-ups")

func (s *subscription) note() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *subscription) Receive() (driver.Event, error) {
	for {
		s.mu.Lock()
		switch {
		case len(s.events) > 0:
			first := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			return first.Event, first.err
		case s.failed != nil:
			defer s.mu.Unlock()
			return driver.Event{}, s.failed
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case err := <-s.lost:
			s.fail(s.reason(because(err)))
		}
	}
}

// Close takes up to a second if the server does not answer.
func (s *subscription) Close() error {
	s.over.Store(true)
	if s.conn != nil {
		s.conn.Close()
	}
	return nil
}
