package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// A client is one connection, for tests that look at what happens to it.
type client struct {
	net.Conn
	t       *testing.T
	replies *decoder
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn, t, newDecoder(conn)}
}

func (c *client) send(args ...string) {
	c.t.Helper()
	if _, err := c.Write(encode(args)); err != nil {
		c.t.Fatalf("send %q: %v", args, err)
	}
}

func (c *client) wantReply(wanted any) {
	c.t.Helper()
	if v, err := c.receive(10 * time.Second); err != nil || !reflect.DeepEqual(v, wanted) {
		c.t.Fatalf("received %#v, %v; want %#v", v, err, wanted)
	}
}

func (c *client) ask(wanted any, args ...string) {
	c.t.Helper()
	c.send(args...)
	c.wantReply(wanted)
}

// hearNothing fails if anything comes, even the end of the connection.
func (c *client) hearNothing(d time.Duration) {
	c.t.Helper()
	if v, err := c.receive(d); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("received %#v, %v; want silence", v, err)
	}
}

func (c *client) wantReset() {
	c.t.Helper()
	if v, err := c.receive(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("received %#v, %v; want a reset", v, err)
	}
}

func (c *client) wantEnd() {
	c.t.Helper()
	if v, err := c.receive(10 * time.Second); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("received %#v, %v; want the end", v, err)
	}
}

func (c *client) receive(limit time.Duration) (any, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		c.t.Fatal(err)
	}
	_, v, err := c.replies.next()
	return v, err
}
