package embedded

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"
)

// pipe is a connection whose server never waits for the client to read; the buffers of a socket do
// the same. A bare net.Pipe can deadlock: the client holds a lock while it writes, its reader waits
// for that lock, and the server is about to send a message.
type pipe struct {
	net.Conn          // to the server, for writes of the client
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

// take buffers what the server sends.
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

// give passes the buffer on to the reader.
func (p *pipe) give(to net.Conn) {
	defer func() { _ = to.Close() }() // the reader sees EOF
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
