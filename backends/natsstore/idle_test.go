package natsstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// By default, the client library finds a connection that is silent after four minutes or more.
func TestAnIdleConnectionThatWasForgottenFailsNoLock(t *testing.T) {
	t.Parallel()
	server := run(t)
	if err := natsstore.New(dial(t, server.ClientURL())).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	silent.Forgets(t, server.Addr().String(), silent.Untested, func(t *testing.T, addr string) backends.Store {
		return natsstore.New(dial(t, "nats://"+addr), natsstore.WithMaxTTL(time.Hour))
	})
}

// The client library reads that a connection has ended, with TLS too, and makes it again.
func TestAConnectionWithTLSThatTheServerHasClosedFailsNoLock(t *testing.T) {
	t.Parallel()
	config, roots := silent.Certificates(t)
	server := run(t, func(o *server.Options) { o.TLSConfig, o.TLSTimeout = config, patience.Seconds() })
	conn := dial(t, server.ClientURL(), nats.Secure(roots))
	store := natsstore.New(conn)
	if err := store.Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	silent.Closes(t, store, func() {
		before := conn.Stats().Reconnects
		clients, err := server.Connz(nil)
		if err != nil || len(clients.Conns) == 0 {
			t.Fatalf("Connz = %+v, %v", clients, err)
		}
		for _, c := range clients.Conns {
			if err := server.DisconnectClientByID(c.Cid); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "another connection", func() bool { return conn.Stats().Reconnects > before })
	})
}

// Counterexample: a grant is on its way on a connection that falls silent. If the connection is
// made again, what cleans up after the grant overtakes it. Then the network delivers the grant, and
// nobody releases it. The cleanup goes over a second connection, and is repeated when the first one
// has answered.
func TestAConnectionWithAGrantOnItsWayIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	// A busy machine ends the second connection, which is found silent after two seconds. Then nothing is done.
	trial.WhileBusy(t, 2*time.Second, func(t testing.TB, _ time.Duration) {
		server := run(t)
		if err := natsstore.New(dial(t, server.ClientURL())).Install(trial.Patient(t), 1); err != nil {
			t.Fatal(err)
		}
		relay := redistest.NewRelay(t, server.Addr().String())
		conn := dial(t, "nats://"+relay.Addr(), nats.Name("app"))
		t.Cleanup(relay.CutAll)
		store := natsstore.New(conn)
		for _, key := range []string{"a", "b"} {
			if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
				t.Fatalf("SetNX = %+v, %v", r, err)
			}
		}
		answered(t, server, store)
		relay.Forsake()
		if r, err := store.SetNX(t.Context(), "c", "token", 20*time.Second); err == nil {
			t.Fatalf("SetNX on a silent connection = %+v", r)
		}
		for _, key := range []string{"c", "b"} { // over five seconds have passed
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if ok, err := store.DeleteIf(ctx, key, "token"); ok != (key == "b") || err != nil {
				t.Errorf("DeleteIf of %s over a second connection = %v, %v", key, ok, err)
			}
			cancel()
		}
		if n := conn.Stats().Reconnects; n != 0 {
			t.Errorf("the connection was made again %d times", n)
		}
	})
}

// The answer to a test may stand behind many messages for the application.
func TestAConnectionOnWhichMessagesComeIsKept(t *testing.T) {
	t.Parallel()
	// A busy machine brings no message for two seconds. Then the connection is made again.
	trial.WhileBusy(t, 2*time.Second, func(t testing.TB, _ time.Duration) {
		server := run(t)
		direct := dial(t, server.ClientURL())
		if err := natsstore.New(direct).Install(trial.Patient(t), 1); err != nil {
			t.Fatal(err)
		}
		wire := new(withoutPong)
		conn := dial(t, server.ClientURL(), nats.SetCustomDialer(wire))
		if _, err := conn.Subscribe("news", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		locks := locker.New(single.New(natsstore.New(conn)))
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
	})
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
