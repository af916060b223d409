package natsstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	silence = 500 * time.Millisecond // how long a request may have no answer until its connection is asked
	grace   = 300 * time.Millisecond // for that answer
	redial  = time.Second            // before another second connection is opened; it doubles
	redials = 16 * time.Second       // at most
	dialing = 2 * time.Second        // at most, for each server
)

// A first is the connection of the application. All requests go over it, until it falls silent. Then they go
// over a second one, until the first has answered, or the client library has made it again or given it up.
type first struct {
	opts    nats.Options  // of the second connection, without its servers
	opening chan struct{} // full while a second connection is being opened

	mu      sync.Mutex
	doubt   *doubt        // nil: it answers
	changed chan struct{} // closed when requests go over another connection
}

// A doubt is whether the first connection still answers.
type doubt struct {
	from    time.Time       // from then on, requests wait until it is settled
	settled chan struct{}   // closed when it is known whether there is a second connection; under the mutex of first
	over    context.Context // ends with the doubt: what was sent over the first connection before it has arrived or is lost
	end     context.CancelFunc
	after   context.Context // ends when that is so for what was sent during the doubt, too
	endAll  context.CancelFunc
	second  atomic.Pointer[second]
}

// A second is a second connection.
type second struct {
	conn     *nats.Conn
	closed   <-chan struct{}
	requests sync.RWMutex // held for reading by each request
}

// newFirst copies the options of the connection, without the handlers of the application. The client library
// would close the second connection when it is silent, and its requests with it: see answering.
func newFirst(conn *nats.Conn) *first {
	f := &first{opening: make(chan struct{}, 1), changed: make(chan struct{})}
	if conn == nil {
		return f
	}
	o := conn.Opts
	o.Name = strings.TrimSpace(o.Name + " lockstep")
	o.ClosedCB, o.ConnectedCB, o.DisconnectedCB, o.DisconnectedErrCB, o.ReconnectedCB = nil, nil, nil, nil, nil
	o.ReconnectErrCB, o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil, nil
	o.ReconnectToServerCB, o.CustomReconnectDelayCB = nil, nil
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // without one, the client library prints errors
	o.AllowReconnect, o.RetryOnFailedConnect, o.IgnoreDiscoveredServers = false, false, true
	o.PingInterval = time.Hour
	if o.Timeout <= 0 || o.Timeout > dialing {
		o.Timeout = dialing
	}
	f.opts = o
	return f
}

// doubted returns the doubt, or nil, and what is closed when requests go over another connection.
func (f *first) doubted() (*doubt, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doubt, f.changed
}

// settling returns the doubt, or nil, and what is closed when it is known whether there is a second connection.
func (f *first) settling() (*doubt, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubt == nil {
		return nil, nil
	}
	return f.doubt, f.doubt.settled
}

// usable is the second connection, or nil.
func (d *doubt) usable() *second {
	if d == nil {
		return nil
	}
	if second := d.second.Load(); second != nil && !second.conn.IsClosed() {
		return second
	}
	return nil
}

// via returns the way of the next request. It waits while a second connection is being opened.
func (s *Store) via(ctx context.Context) (way, error) {
	d, settled := s.first.settling()
	if d == nil {
		return s.own(), nil
	}
	if !time.Now().Before(d.from) {
		select {
		case <-settled:
		case <-ctx.Done():
			return way{}, s.over(ctx)
		}
	}
	if second := d.usable(); second != nil && second.requests.TryRLock() { // else it is being closed
		return way{conn: second.conn, end: second.requests.RUnlock}, nil
	}
	return s.own(), nil
}

// own is the way over the connection of the application.
func (s *Store) own() way { return way{conn: s.conn, isFirst: true, end: func() {}} }

// best is the connection for what needs no answer.
func (s *Store) best() *nats.Conn {
	d, _ := s.first.doubted()
	if second := d.usable(); second != nil {
		return second.conn
	}
	return s.conn
}

// late begins a doubt because a request has had no answer for a while.
func (s *Store) late() { s.ask(time.Now()) }

// left is the error of a request that was left without an answer, and that may still arrive over the
// first connection.
func (s *Store) left(err error, began time.Time) error {
	from := time.Now()
	if from.Sub(began) < silence {
		from = from.Add(grace) // it was left so soon that it tells little
	}
	d, begun := s.ask(from)
	if begun {
		return onTheWay{err, d.over}
	}
	return onTheWay{err, d.after}
}

// onTheWay is the error of a request that may still arrive over the first connection.
type onTheWay struct {
	error
	over context.Context
}

func (e onTheWay) Unwrap() error         { return e.error }
func (e onTheWay) Late() context.Context { return e.over }

// ask begins a doubt, if there is none.
func (s *Store) ask(from time.Time) (d *doubt, begun bool) {
	f := s.first
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubt != nil {
		return f.doubt, false
	}
	d = &doubt{from: from, settled: make(chan struct{})}
	d.over, d.end = context.WithCancel(context.Background())
	d.after, d.endAll = context.WithCancel(context.Background())
	f.doubt = d
	go s.settle(d)
	return d, true
}

// settle ends a doubt. Nothing but a PING is sent for it.
func (s *Store) settle(d *doubt) {
	servers := make(chan []string, 1)
	answered, answers := context.WithCancel(context.Background())
	go func() { // what asks the connection for anything may wait until it takes more bytes
		defer answers()
		servers <- serversOf(s.conn)
		s.answers()
	}()
	select {
	case <-answered.Done():
		close(d.settled)
	case <-time.After(grace):
		s.cover(answered, d, servers)
	}
	s.switched(func() { s.first.doubt = nil })
	d.end()
	if second := d.second.Load(); second != nil {
		second.close()
	}
	s.answers()
	d.endAll()
}

// switched does what makes requests go over another connection, and tells the watchers.
func (s *Store) switched(do func()) {
	f := s.first
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// answers waits until all that was sent over the first connection has arrived or is lost.
func (s *Store) answers() {
	changed := s.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.conn.RemoveStatusListener(changed)
	for !s.conn.IsClosed() {
		heard := s.rests.request()
		ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
		err := s.conn.FlushWithContext(ctx)
		cancel()
		if err == nil {
			heard()
			return
		}
		select { // it may be being made again
		case <-changed:
		case <-time.After(testStep):
		}
	}
}

// serversOf are the servers that the application has named, with that of the connection last.
func serversOf(conn *nats.Conn) (all []string) {
	found, now := conn.DiscoveredServers(), conn.ConnectedUrlRedacted()
	var last []string
	for _, server := range conn.ServerPool() {
		switch url := server.URL; {
		case slices.Contains(found, url.Scheme+"://"+url.Host):
		case url.Redacted() == now:
			last = append(last, url.String())
		default:
			all = append(all, url.String())
		}
	}
	return append(all, last...)
}

// cover keeps a second connection open until the first has answered.
func (s *Store) cover(answered context.Context, d *doubt, servers <-chan []string) {
	settled := sync.OnceFunc(func() { close(d.settled) })
	defer func() { settled() }()
	opts := s.first.opts
	select {
	case all := <-servers:
		if len(all) > 0 {
			opts.Url, opts.Servers, opts.NoRandomize = "", all, true
		}
	default: // the connection takes no more bytes: the servers that it was made with are as good
	}
	for pause := redial; ; {
		second := s.dial(answered, opts)
		if second != nil {
			// A server that forgot its last messages in a power cut gives their sequences again.
			s.grants.clear()
			s.switched(func() { d.second.Store(second) })
		}
		settled()
		if second != nil {
			second.answering(answered)
			if answered.Err() != nil {
				return
			}
			if pause = redial; !second.conn.IsClosed() { // it is silent: calls wait for the next one
				next := make(chan struct{})
				s.switched(func() { d.settled = next; d.second.Store(nil) })
				settled = sync.OnceFunc(func() { close(next) })
				go second.close()
				continue
			}
		}
		select {
		case <-time.After(pause):
		case <-answered.Done():
			return
		}
		pause = min(2*pause, redials)
	}
}

// answering returns when the second connection is closed, or has been silent for a second: then the next
// request takes another. Those that were sent may still be answered, as by a server that is slow.
func (c *second) answering(first context.Context) {
	for {
		select {
		case <-time.After(time.Second):
		case <-c.closed:
			return
		case <-first.Done():
			return
		}
		before := c.conn.Stats().InMsgs
		if late, _ := ping(first, c.conn); late && c.conn.Stats().InMsgs == before {
			return
		}
	}
}

// close waits for the last request.
func (c *second) close() {
	c.requests.Lock()
	defer c.requests.Unlock()
	c.conn.Close()
}

// dial opens a connection, one at a time. It returns nil if it can't, or when the first one has answered.
func (s *Store) dial(answered context.Context, opts nats.Options) *second {
	select {
	case s.first.opening <- struct{}{}:
	case <-answered.Done():
		return nil
	}
	opened := make(chan *second)
	go func() {
		defer func() { <-s.first.opening }()
		closed := make(chan struct{})
		opts.ClosedCB = func(*nats.Conn) { close(closed) }
		var c *second
		if conn, err := opts.Connect(); err == nil {
			c = &second{conn: conn, closed: closed}
		}
		select {
		case opened <- c:
		case <-answered.Done():
			if c != nil {
				c.conn.Close()
			}
		}
	}()
	select {
	case c := <-opened:
		return c
	case <-answered.Done():
		return nil
	}
}
