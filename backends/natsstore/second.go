package natsstore

import (
	"context"
	"net"
	"os"
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
	stuck   atomic.Int64  // requests that were left, while the client library did not return from them

	mu      sync.Mutex
	doubt   *doubt        // nil: it answers
	changed chan struct{} // closed when requests go over another connection
}

// A doubt is whether the first connection still answers. It ends with an answer: then all that was sent
// before has arrived. Or the connection is given up: then a server or proxy that stands still may have
// what was sent, and a grant that it carries out later holds the key for its TTL, although nobody has the
// lock.
type doubt struct {
	from    time.Time       // from then on, requests wait until it is settled
	settled chan struct{}   // closed when it is known whether there is a second connection
	over    context.Context // ends with the doubt, for what was sent over the first connection before it
	end     context.CancelFunc
	after   context.Context // ends with an answer to what was sent during the doubt, too, or with the connection
	endAll  context.CancelFunc
	second  atomic.Pointer[spare]
}

const maxStuck = 1000 // further requests fail at once

// A spare is a second connection, or one that takes its place.
type spare struct {
	conn     *nats.Conn
	place    place
	closed   <-chan struct{}
	over     context.Context // ends with the connection; what was sent over it may still arrive: see doubt
	end      context.CancelFunc
	requests sync.RWMutex // held for reading by each request
}

// newFirst copies the options of the connection, without the handlers of the application. If a PING had no
// answer, the client library would close the second connection, and the requests on it would fail. So the
// store sends the PINGs: see watch.
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
	o.PingInterval = time.Hour // in effect never
	o.Timeout = atMost(o.Timeout)
	if o.Dialer != nil { // the client library has put the limit of the application there
		d := *o.Dialer
		d.Timeout = atMost(d.Timeout)
		o.Dialer = &d
	}
	if o.CustomDialer != nil {
		o.CustomDialer = dialer{o.CustomDialer, new(atomic.Int32)}
	}
	f.opts = o
	return f
}

// atMost is limit, or dialing if that is shorter.
func atMost(limit time.Duration) time.Duration {
	if limit <= 0 {
		return dialing
	}
	return min(limit, dialing)
}

// A dialer gives up a server that the dialer of the application is still dialling after a while.
type dialer struct {
	nats.CustomDialer
	left *atomic.Int32 // calls that were given up, and have not returned
}

const maxLeft = 64 // more than the servers of a list; further dials fail at once

func (d dialer) Dial(network, addr string) (net.Conn, error) {
	if d.left.Load() >= maxLeft {
		return nil, os.ErrDeadlineExceeded
	}
	type result struct {
		conn net.Conn
		err  error
	}
	results, givenUp := make(chan result), make(chan struct{})
	go func() {
		conn, err := d.CustomDialer.Dial(network, addr)
		select {
		case results <- result{conn, err}:
		case <-givenUp:
			d.left.Add(-1)
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.conn, r.err
	case <-time.After(dialing):
		d.left.Add(1)
		close(givenUp)
		return nil, os.ErrDeadlineExceeded
	}
}

// SkipTLSHandshake asks the dialer of the application. The client library calls it.
func (d dialer) SkipTLSHandshake() bool {
	s, ok := d.CustomDialer.(interface{ SkipTLSHandshake() bool })
	return ok && s.SkipTLSHandshake()
}

// doubted returns the doubt, or nil, and what is closed when requests go over another connection.
func (f *first) doubted() (*doubt, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doubt, f.changed
}

// usable is the second connection, or nil.
func (d *doubt) usable() *spare {
	if d == nil {
		return nil
	}
	c := d.second.Load()
	if c == nil {
		return nil
	}
	select {
	case <-c.closed: // IsClosed would wait for a write that is stuck
		return nil
	default:
		return c
	}
}

// via returns the way of the next request. It waits while a second connection is being opened.
func (s *Store) via(ctx context.Context) (way, error) {
	d, _ := s.first.doubted()
	if d == nil {
		return s.own(), nil
	}
	if !time.Now().Before(d.from) {
		select {
		case <-d.settled:
		case <-ctx.Done():
			return way{}, s.over(ctx)
		}
	}
	for c := d.usable(); c != nil; c = d.usable() {
		if c.requests.TryRLock() { // else it is being closed, and another has its place
			return way{conn: c.conn, place: &c.place, over: c.over, end: c.requests.RUnlock}, nil
		}
	}
	return s.own(), nil
}

// own is the way over the connection of the application.
func (s *Store) own() way { return way{conn: s.conn, place: &s.place, isFirst: true, end: func() {}} }

// best is the connection for what needs no answer.
func (s *Store) best() *nats.Conn {
	d, _ := s.first.doubted()
	if c := d.usable(); c != nil {
		return c.conn
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

// leave is left for a request whose connection takes no more bytes. It may still be sent, and arrives
// before an answer to what is sent after it.
func (s *Store) leave(err error, w way, began time.Time, ended <-chan struct{}) error {
	if !w.isFirst {
		return onTheWay{err, w.over}
	}
	_ = s.left(err, began)
	over, end := context.WithCancel(context.Background())
	s.first.stuck.Add(1)
	go func() {
		<-ended
		s.first.stuck.Add(-1)
		s.answers()
		end()
	}()
	return onTheWay{err, over}
}

// onTheWay is the error of a request that may still arrive over its connection.
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
	answered, cancel := context.WithCancel(context.Background())
	go func() { // what asks the connection for anything may wait until it takes more bytes
		defer cancel()
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
	if c := d.second.Swap(nil); c != nil {
		c.close()
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

// answers waits until all that was sent over the first connection has arrived, or that connection was
// given up.
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

// cover keeps a second connection open until the first has answered. If that falls silent as well, the server
// may only be slow: it is kept until another is open, and closed after its last request.
func (s *Store) cover(answered context.Context, d *doubt, servers <-chan []string) {
	settled := sync.OnceFunc(func() { close(d.settled) })
	defer settled()
	opts := s.first.opts
	select {
	case all := <-servers:
		if len(all) > 0 {
			opts.Url, opts.Servers, opts.NoRandomize = "", all, true
		}
	default: // the connection takes no more bytes: the servers that it was made with are as good
	}
	var c, before *spare
	for pause := redial; ; pause = min(2*pause, redials) {
		if before != nil && !before.ends(answered) {
			return
		}
		next := s.dial(answered, opts)
		if next != nil {
			// A server that forgot its last messages in a power cut gives their sequences again.
			s.grants.clear()
			s.switched(func() { d.second.Store(next) })
			if c != nil {
				go c.close()
			}
			c, before, pause = next, c, redial
		}
		settled()
		if c != nil {
			heard, isSilent := c.watch(answered)
			if answered.Err() != nil {
				return
			}
			if isSilent && (next != nil || heard) {
				continue
			}
			// It has ended; or it is silent and the dial failed, and it makes room, as at a limit of
			// connections.
			s.switched(func() { d.second.Store(nil) })
			go c.close()
			c, before = nil, c
		}
		select {
		case <-time.After(pause):
		case <-answered.Done():
			return
		}
	}
}

// watch sends PINGs until one has no answer for a second (silent), the connection has ended, or the first one
// has answered. heard says that an earlier PING was answered.
func (c *spare) watch(answered context.Context) (heard, silent bool) {
	for {
		select {
		case <-time.After(time.Second):
		case <-c.closed:
			return heard, false
		case <-answered.Done():
			return heard, false
		}
		late, err := ping(answered, c.conn)
		if late {
			return heard, true
		}
		heard = heard || err == nil
	}
}

// ends waits for the end of a connection that is being closed. It is false if the first one answers sooner.
func (c *spare) ends(answered context.Context) bool {
	select {
	case <-c.over.Done():
		return true
	case <-answered.Done():
		return false
	}
}

// close waits for the last request. There is none after it.
func (c *spare) close() {
	c.requests.Lock()
	c.conn.Close()
	c.end()
}

// dial opens a connection, one at a time. It returns nil if it can't, or when the first one has answered.
func (s *Store) dial(answered context.Context, opts nats.Options) *spare {
	select {
	case s.first.opening <- struct{}{}:
	case <-answered.Done():
		return nil
	}
	opened := make(chan *spare)
	go func() {
		defer func() { <-s.first.opening }()
		closed := make(chan struct{})
		opts.ClosedCB = func(*nats.Conn) { close(closed) }
		var c *spare
		if conn, err := opts.Connect(); err == nil {
			c = &spare{conn: conn, closed: closed}
			c.over, c.end = context.WithCancel(context.Background())
		}
		select {
		case opened <- c:
		case <-answered.Done():
			if c != nil {
				c.close()
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
