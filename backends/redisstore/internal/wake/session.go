package wake

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// session is the life of one connection.
type session struct {
	*Listener
	sub       driver.Subscription
	asked     map[string]*topic // what this connection is subscribed to, or will be; the asking goroutine's own
	confirmed bool              // this connection has worked; guarded by Listener.mu
	requests  []request         // unanswered, oldest first; guarded by Listener.mu
	heard     bool              // anything since the last ping; guarded by Listener.mu
}

// serve subscribes and unsubscribes channels until nobody waits, or the connection fails. The error
// is nil if nobody waits.
func (s *session) serve() error {
	var broken chan error
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		leaves, joins := s.changes()
		for _, channel := range leaves {
			if err := s.sub.Unsubscribe(channel); err != nil {
				return s.end(broken, err)
			}
		}
		for _, channel := range joins {
			if err := s.sub.Subscribe(channel); err != nil {
				return s.end(broken, err)
			}
			if broken == nil { // the first request has opened the connection
				broken = make(chan error, 1)
				go func() { broken <- s.receive() }()
			}
		}
		if len(s.asked) == 0 {
			return s.end(broken, nil)
		}
		select {
		case <-s.changed:
		case err := <-broken:
			return err
		case <-ping.C:
			if !s.alive() {
				return s.end(broken, errSilent)
			}
			s.expect(request{})
			if err := s.sub.Ping(); err != nil {
				return s.end(broken, err)
			}
		}
	}
}

var errSilent = errors.New("the connection for wake-ups does not answer")

// end closes the connection and waits for the receiving goroutine.
func (s *session) end(broken <-chan error, err error) error {
	_ = s.sub.Close() // err is the cause
	if broken != nil {
		<-broken //nolint:errcheck // its error comes from the Close
	}
	return err
}

// changes compares the channels that are wanted with those of this connection. It expects the
// answers in the order of its results.
func (s *session) changes() (leaves, joins []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, t := range s.asked {
		if s.topics[channel] != t { // gone, or gone and come again
			leaves = append(leaves, channel)
			s.requests = append(s.requests, request{})
			delete(s.asked, channel)
		}
	}
	var asks []*topic
	for _, t := range s.topics {
		if !t.asked {
			asks = append(asks, t)
		}
	}
	slices.SortFunc(asks, func(a, b *topic) int { return cmp.Compare(a.number, b.number) })
	for _, t := range asks {
		t.asked = true
		joins = append(joins, t.channel)
		s.requests = append(s.requests, request{t})
		s.asked[t.channel] = t
	}
	return leaves, joins
}

func (s *session) expect(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

// alive tells whether anything was heard since it was last called.
func (s *session) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := s.heard
	s.heard = false
	return heard
}

// receive takes events until the connection fails.
func (s *session) receive() error {
	for {
		event, err := s.sub.Receive()
		// also from a server that has too many clients: it answers another time
		if err != nil && !answersOne(err) {
			return err
		}
		for _, wake := range s.take(event, err) {
			wake()
		}
	}
}

// answersOne tells that err is the answer to one request, and that repeating the request will not
// help.
func answersOne(err error) bool {
	return errors.As(err, new(*driver.ReplyError)) && outcome.Permanent(err)
}

// take notes an event and returns the functions to call.
func (s *session) take(event driver.Event, err error) (wakes []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = true
	if err == nil && event.Kind == driver.EventMessage {
		if t := s.topics[event.Channel]; t != nil && t.told != nil {
			return []func(){func() { t.told(event.Payload) }}
		}
		return s.topics[event.Channel].wakes()
	}
	if err == nil && event.Kind == driver.EventSubscribed && (len(s.requests) == 0 || !s.requests[0].isFor(event.Channel)) {
		return s.topics[event.Channel].wakes() // not requested: the library has connected again by itself
	}
	if len(s.requests) == 0 {
		return nil
	}
	r := s.requests[0]
	s.requests = s.requests[1:]
	switch {
	case r.topic == nil:
	case err != nil:
		s.refuse(r.topic, err)
		s.note()
	default:
		s.confirmed = true
		r.topic.active = true
		for me := range r.topic.watchers {
			select {
			case me.ready <- nil:
			default:
			}
		}
		if r.topic.before { // messages in between are lost, so all must look
			return r.topic.wakes()
		}
	}
	return nil
}
