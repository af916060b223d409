package etcdtest

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
)

// wires carry what members say to each other.
type wires struct {
	mu       sync.Mutex
	all      []*wire
	from     string // the id of the member that is cut off; empty: none
	isolated *wire
}

// A wire is the address of one member for the others. A connection begins with a request of HTTP that
// names the member that has dialled, so the wire knows both ends.
type wire struct {
	listener net.Listener
	target   string
	open     map[net.Conn]string // by the member that has dialled
}

func (ws *wires) add(tb testing.TB, target string) *wire {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{listener: l, target: target, open: map[net.Conn]string{}}
	ws.mu.Lock()
	ws.all = append(ws.all, w)
	ws.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { ws.serve(w, conn) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		ws.mu.Lock()
		for conn := range w.open {
			_ = conn.Close()
		}
		ws.mu.Unlock()
		running.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// isolate cuts all connections from and to a member, and none of the others. A nil wire is none.
func (ws *wires) isolate(from string, to *wire) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.from, ws.isolated = from, to
	for _, w := range ws.all {
		for conn, by := range w.open {
			if ws.cut(w, by) {
				_ = conn.Close()
			}
		}
	}
}

func (ws *wires) cut(w *wire, by string) bool {
	return ws.isolated != nil && (w == ws.isolated || by == ws.from)
}

// join notes a connection, unless it is cut.
func (ws *wires) join(w *wire, by string, conns ...net.Conn) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.cut(w, by) {
		return false
	}
	for _, conn := range conns {
		w.open[conn] = by
	}
	return true
}

func (ws *wires) leave(w *wire, conns ...net.Conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, conn := range conns {
		delete(w.open, conn)
		_ = conn.Close()
	}
}

func (ws *wires) serve(w *wire, member net.Conn) {
	defer ws.leave(w, member)
	if !ws.join(w, "", member) {
		return
	}
	var head []byte
	for buffer := make([]byte, 4096); !bytes.Contains(head, []byte("\r\n\r\n")); {
		n, err := member.Read(buffer)
		head = append(head, buffer[:n]...)
		if err != nil {
			return
		}
	}
	by := ""
	if found := sender.FindSubmatch(head); found != nil {
		by = string(found[1])
	}
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer ws.leave(w, server)
	if !ws.join(w, by, member, server) {
		return
	}
	if _, err := server.Write(head); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, member)
		_ = server.Close()
	}()
	_, _ = io.Copy(member, server)
}

var sender = regexp.MustCompile(`(?i)\r\nX-Server-From: ([0-9a-f]+)\r\n`)
