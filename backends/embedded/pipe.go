package embedded

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"
)

// pipe is a connection on which the server is never kept waiting for the client to read, as a socket's buffers see to. On
// a bare net.Pipe, a client that holds a lock while it writes, and a reader that waits for that lock, stand still together with a
// server that is about to send a message.
type pipe struct {
	net.Conn          // to the server: what the client writes
	reads    net.Conn // what the server has written

	mu      sync.Mutex
	changed sync.Cond
	waiting bytes.Buffer
	err     error // the server has closed the connection
}

func newPipe(server net.Conn) *pipe {
	in, out := net.Pipe()
	p := &pipe{Conn: server, reads: out}
	p.changed.L = &p.mu
	go p.take()
	go p.give(in)
	return p
}

// take keeps what the server sends.
func (p *pipe) take() {
	for chunk := make([]byte, 4096); ; {
		n, err := p.Conn.Read(chunk)
		p.mu.Lock()
		p.waiting.Write(chunk[:n])
		p.err = err
		p.changed.Signal()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// give passes it on to who reads.
func (p *pipe) give(to net.Conn) {
	defer func() { _ = to.Close() }() // who reads finds the end
	for {
		p.mu.Lock()
		for p.waiting.Len() == 0 && p.err == nil {
			p.changed.Wait()
		}
		chunk := bytes.Clone(p.waiting.Bytes())
		p.waiting.Reset()
		p.mu.Unlock()
		if len(chunk) == 0 {
			return
		}
		if _, err := to.Write(chunk); err != nil {
			return
		}
	}
}

func (p *pipe) Read(b []byte) (int, error) { return p.reads.Read(b) }

func (p *pipe) Close() error { return errors.Join(p.Conn.Close(), p.reads.Close()) }

func (p *pipe) SetReadDeadline(t time.Time) error { return p.reads.SetReadDeadline(t) }

func (p *pipe) SetDeadline(t time.Time) error {
	return errors.Join(p.SetWriteDeadline(t), p.SetReadDeadline(t))
}
