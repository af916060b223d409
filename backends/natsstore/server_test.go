package natsstore_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const patience = 30 * time.Second // for a busy machine

// run starts a server in this process, on a free port.
func run(t testing.TB, change ...func(*server.Options)) *server.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(dir, "data"), NoLog: true, NoSigs: true}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s
}

// dial connects, and goes on trying for as long as the test lasts.
func dial(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, append(slices.Clone(connecting), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

var connecting = []nats.Option{
	nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.Timeout(patience),
	nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default prints them
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
