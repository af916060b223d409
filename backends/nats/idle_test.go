package nats_test

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	natsgo "github.com/nats-io/nats.go"
)

// By default, the client library finds a connection that is silent after four minutes or more.
func TestAnIdleConnectionThatWasForgottenFailsNoLock(t *testing.T) {
	t.Parallel()
	server := run(t)
	if err := nats.New(dial(t, server.ClientURL())).Install(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	silent.Forgets(t, server.Addr().String(), silent.Untested, func(t *testing.T, addr string) backends.Store {
		return nats.New(dial(t, "nats://"+addr), nats.WithMaxTTL(time.Hour))
	})
}

// The answer to a test may stand behind many messages for the application.
func TestAConnectionOnWhichMessagesComeIsKept(t *testing.T) {
	t.Parallel()
	server := run(t)
	direct := dial(t, server.ClientURL())
	if err := nats.New(direct).Install(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wire := new(withoutPong)
	conn := dial(t, server.ClientURL(), natsgo.SetCustomDialer(wire))
	if _, err := conn.Subscribe("news", func(*natsgo.Msg) {}); err != nil {
		t.Fatal(err)
	}
	locks := locker.New(single.New(nats.New(conn)))
	time.Sleep(silent.Untested)
	wire.lose.Store(true)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_ = direct.Publish("news", []byte("news"))
			}
		}
	}()
	l, err := locks.Lock(t.Context(), "a")
	close(stop)
	<-stopped
	if err != nil {
		t.Fatalf("Lock = %v", err)
	}
	if n := conn.Stats().Reconnects; n != 0 || !wire.lost.Load() {
		t.Errorf("the connection was made again %d times; a PONG was lost: %v", n, wire.lost.Load())
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// withoutPong makes connections on which the answers to PING can be lost.
type withoutPong struct{ lose, lost atomic.Bool }

func (w *withoutPong) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	return &lossy{c, w}, err
}

type lossy struct {
	net.Conn

	by *withoutPong
}

func (l *lossy) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		if !l.by.lose.Load() {
			return n, err
		}
		left := bytes.ReplaceAll(b[:n], []byte("PONG\r\n"), nil)
		if len(left) < n {
			l.by.lost.Store(true)
		}
		if n = copy(b, left); n > 0 || err != nil {
			return n, err
		}
	}
}
