package lab

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// A Relay stands between clients and a server and delays every byte: it plays a long distance
// between two machines.
type Relay struct {
	Addr string // where clients connect

	target   string
	delay    time.Duration
	listener net.Listener
	working  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[*net.TCPConn]bool
}

// Delay starts a relay on a free loopback port. It sends each chunk of bytes d after it has read
// it, in both directions and in order. A chunk does not wait for the delays of the chunks before
// it. So a round trip takes 2 d longer. Opening a connection takes no longer than without the
// relay.
func Delay(target string, d time.Duration) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{Addr: l.Addr().String(), target: target, delay: d, listener: l, open: map[*net.TCPConn]bool{}}
	r.working.Go(r.accept)
	return r, nil
}

// Close ends all connections and waits until no goroutine of the relay runs. Bytes under way are
// lost.
func (r *Relay) Close() {
	_ = r.listener.Close() // nothing was written that a failed Close could lose
	r.mu.Lock()
	r.closed = true
	for conn := range r.open {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.working.Wait()
}

func (r *Relay) accept() {
	defer func() { _ = r.listener.Close() }() // if Accept fails by itself, clients must notice
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.working.Go(func() { r.serve(client.(*net.TCPConn)) })
	}
}

// serve ends when both directions have ended.
func (r *Relay) serve(client *net.TCPConn) {
	defer r.forget(client)
	if !r.remember(client) {
		return
	}
	conn, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	defer r.forget(server)
	if !r.remember(server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { r.pass(server, client) })
	r.pass(client, server)
	back.Wait()
}

// remember reports whether the relay is still open. Then Close ends the connection.
func (r *Relay) remember(conn *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.open[conn] = true
	}
	return !r.closed
}

func (r *Relay) forget(conn *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, conn)
	_ = conn.Close()
}

// A chunk is what one Read returned.
type chunk struct {
	due   time.Time
	bytes []byte // empty: the end
}

// pass is one direction. It ends when the sender closes it, or when the receiver takes no bytes.
func (r *Relay) pass(from, to *net.TCPConn) {
	queue := make(chan chunk, 1024) // when it is full, the relay stops reading, as a network does
	var reading sync.WaitGroup
	reading.Go(func() { r.read(from, queue) })
	if r.write(queue, to) != nil {
		_, _ = from.Close(), to.Close() // so that the sender notices, and read ends
	}
	for range queue { // read may wait for room in it
	}
	reading.Wait()
}

func (r *Relay) read(from *net.TCPConn, queue chan<- chunk) {
	defer close(queue)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		due := time.Now().Add(r.delay)
		if n > 0 {
			queue <- chunk{due, bytes.Clone(buffer[:n])}
		}
		if err != nil {
			queue <- chunk{due: due}
			return
		}
	}
}

func (r *Relay) write(queue <-chan chunk, to *net.TCPConn) error {
	a, err := newAlarm()
	if err != nil {
		return err
	}
	defer a.close()
	for c := range queue {
		if err := a.wait(time.Until(c.due)); err != nil {
			return err
		}
		if len(c.bytes) == 0 {
			return to.CloseWrite()
		}
		if _, err := to.Write(c.bytes); err != nil {
			return err
		}
	}
	return nil
}
