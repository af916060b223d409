package driver

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// spoken is a connection whose server has said text, and has closed. A write fails with fault.
type spoken struct {
	net.Conn
	text   *strings.Reader
	fault  error
	writes int
}

func (s *spoken) Read(b []byte) (int, error)      { return s.text.Read(b) }
func (s *spoken) SetReadDeadline(time.Time) error { return nil }
func (s *spoken) RemoteAddr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6379} }
func (s *spoken) Write(b []byte) (n int, err error) {
	s.writes++
	if s.fault != nil {
		return 0, s.fault
	}
	return len(b), nil
}

func TestAConnectionThatEndsSaysWhatTheServerSaidFirst(t *testing.T) {
	const full = "ERR max number of clients reached"
	opened := func(s *spoken) net.Conn { return new(Idle).Watch(s) }

	cut := &spoken{text: strings.NewReader("-" + full + "\r\n"), fault: syscall.EPIPE}
	if _, err := opened(cut).Write([]byte("HELLO")); !IsTurnedAway(err) || !backends.Unsent(err) {
		t.Errorf("a write that fails, before anything was read: %v", err)
	}

	heard := &spoken{text: strings.NewReader("-" + full + "\r\n")}
	c := opened(heard)
	buf := make([]byte, 100)
	_, _ = c.Write([]byte("HELLO"))
	if n, err := c.Read(buf); string(buf[:n]) != "-"+full+"\r\n" || err != nil {
		t.Errorf("the library reads %q, %v", buf[:n], err)
	}
	if _, err := c.Write([]byte("SET")); !IsTurnedAway(err) || heard.writes != 1 {
		t.Errorf("behind the refusal: %v, after %d writes; want none but HELLO", err, heard.writes)
	}

	// The server may have carried out what was written behind another error reply.
	old := opened(&spoken{text: strings.NewReader("-ERR unknown command 'HELLO', with args beginning with: 'S3CRET'\r\n")})
	_, _ = old.Write([]byte("HELLO"))
	_, _ = old.Read(buf)
	_, _ = old.Write([]byte("SET"))
	_, err := old.Read(buf)
	if got := new(Heard).Explain(err).Error(); !errors.Is(err, io.EOF) || backends.Unsent(err) ||
		got != `EOF; the server answered only "ERR unknown command 'HELLO'", to the first command` {
		t.Errorf("behind another error reply: %s", got)
	}
}
