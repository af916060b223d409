package quarantinetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// forwarder is one address for several servers, as a DNS name, a virtual IP or a load balancer is.
type forwarder struct {
	listener net.Listener

	mu      sync.Mutex
	targets []string // of the next connections, in turn
	made    int
	conns   []net.Conn
}

func forward(t *testing.T, targets ...string) *forwarder {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listener: l, targets: targets}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	return f
}

func (f *forwarder) addr() string { return f.listener.Addr().String() }

// to leads new connections to targets. Open connections stay.
func (f *forwarder) to(targets ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets, f.made = targets, 0
}

func (f *forwarder) serve(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	target := f.targets[f.made%len(f.targets)]
	f.made++
	server, err := net.Dial("tcp", target)
	if err != nil {
		f.mu.Unlock()
		return
	}
	f.conns = append(f.conns, client, server)
	f.mu.Unlock()
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
