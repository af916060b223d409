package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// connected are both ends of a connection through a relay.
func connected(t *testing.T, d time.Duration) (r *Relay, client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r, err = Delay(l.Addr().String(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	one, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	for _, conn := range []net.Conn{one, other} {
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return r, one.(*net.TCPConn), other.(*net.TCPConn)
}

// All chunks are on their way at the same time: if a chunk waited for the delay of those before it,
// the last one would take 20 times as long.
func TestARelayPassesEachChunkOnAfterItsOwnDelay(t *testing.T) {
	const delay, chunks = 100 * time.Millisecond, 20
	_, client, server := connected(t, delay)
	for _, way := range []struct {
		name     string
		from, to *net.TCPConn
	}{{"to the server", client, server}, {"to the client", server, client}} {
		sent := make(chan time.Time, chunks)
		go func() {
			for i := range chunks {
				sent <- time.Now()
				fmt.Fprintf(way.from, "%04d", i)
				time.Sleep(5 * time.Millisecond)
			}
		}()
		for i := range chunks {
			text := make([]byte, 4)
			if _, err := io.ReadFull(way.to, text); err != nil {
				t.Fatal(err)
			}
			took := time.Since(<-sent)
			if want := fmt.Sprintf("%04d", i); string(text) != want {
				t.Fatalf("%s: %q came instead of %q", way.name, text, want)
			}
			if took < delay || took > 10*delay {
				t.Errorf("%s: chunk %d took %v, want %v", way.name, i, took, delay)
			}
		}
	}
}

func TestARelayPassesOnWhatWasSentBeforeTheEnd(t *testing.T) {
	_, client, server := connected(t, 20*time.Millisecond)
	want := strings.Repeat("0123456789", 100_000)
	go func() {
		_, _ = io.WriteString(client, want)
		_ = client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || string(got) != want {
		t.Errorf("%d bytes came of %d, %v", len(got), len(want), err)
	}
	if _, err := io.WriteString(server, "answer"); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("the other direction: %q, %v", got, err)
	}
}

func TestARelayThatIsClosedEndsItsConnections(t *testing.T) {
	r, client, server := connected(t, time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Close()
		r.Close()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Close does not return")
	}
	for _, conn := range []net.Conn{client, server} {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("Read = %d, %v", n, err)
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection is still open")
		}
	}
	if conn, err := net.Dial("tcp", r.Addr); err == nil {
		_ = conn.Close()
		t.Error("it still accepts connections")
	}
}

func TestARelayEndsAConnectionWhenItsServerIsGone(t *testing.T) {
	r, err := Delay("127.0.0.1:1", time.Millisecond) // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v", err)
	}
}
