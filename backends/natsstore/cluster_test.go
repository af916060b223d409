package natsstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/powercut"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A cluster has servers in processes of their own, which can be killed and stopped.
type cluster struct {
	members []*member
	links   []*link
	conn    *nats.Conn // knows all servers
}

type member struct {
	name, dir      string
	client, routes *daemon.Port
	proc           *daemon.Process
	disk           *powercut.Disk // nil: what is written is safe

	program   string // the test binary, perhaps one of goclock
	clock     string // of the environment
	moveClock func(by time.Duration)
}

// start starts so many servers, and makes a stream with as many replicas. settings are lines of the
// part jetstream of their configuration.
func start(t testing.TB, members int, settings ...string) *cluster {
	t.Helper()
	return startProgram(t, os.Args[0], members, settings...)
}

// startProgram is start with servers that run program, a test binary of this package. If goclock has built
// it, moveClock moves the clock of a server.
func startProgram(t testing.TB, program string, members int, settings ...string) *cluster {
	t.Helper()
	c := &cluster{}
	for i := range members {
		m := &member{name: fmt.Sprint("n", i+1), client: port(t), routes: port(t), program: program}
		dir, err := os.MkdirTemp("", "nats")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		m.dir = dir
		m.clock, m.moveClock = redistest.ClockFile(t, dir)
		c.members = append(c.members, m)
	}
	for i, m := range c.members {
		var routes []string
		for j, other := range c.members {
			if i != j {
				l := newLink(t, i, j, other.routes.Addr())
				c.links = append(c.links, l)
				routes = append(routes, "nats://"+l.listener.Addr().String())
			}
		}
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream {\nstore_dir: %q\n%s\n}\n", m.name, m.client.Addr(), m.store(), strings.Join(settings, "\n"))
		if members > 1 {
			text += fmt.Sprintf("cluster {\nname: C\nlisten: %q\nno_advertise: true\nroutes: [%s]\n}\n", m.routes.Addr(), strings.Join(routes, ", "))
		}
		if err := os.WriteFile(m.config(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.start(t)
	}
	c.conn = dial(t, c.url(), fastPings...)
	store := natsstore.New(c.conn)
	var last error
	eventually(t, "the stream is made", func() bool {
		last = store.Install(t.Context(), members)
		return last == nil
	})
	return c
}

// fastPings finds a server that is stopped. The default takes four minutes.
var fastPings = []nats.Option{
	nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1), nats.Timeout(2 * time.Second), nats.RetryOnFailedConnect(true),
}

func (m *member) config() string { return filepath.Join(m.dir, "server.conf") }
func (m *member) store() string  { return filepath.Join(m.dir, "store") }

func (c *cluster) url() string {
	var all []string
	for _, m := range c.members {
		all = append(all, "nats://"+m.client.Addr())
	}
	return strings.Join(all, ",")
}

func port(t testing.TB) *daemon.Port {
	t.Helper()
	p, err := daemon.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// start starts the process of a server, and returns when it takes connections.
func (m *member) start(t testing.TB) {
	t.Helper()
	cmd := child.Program(t, m.program, "TestProcess", m.clock, "NATS_CONFIG="+m.config())
	cmd.Args = append(cmd.Args, "-test.timeout=30m")
	start := daemon.Start
	if m.disk != nil {
		start = m.disk.Start
	}
	proc, err := start(m.dir, cmd)
	if err == nil {
		err = proc.Await(func(log string) bool { return strings.HasPrefix(log, "ready") })
	}
	if err != nil {
		t.Fatalf("server %s: %v", m.name, err)
	}
	m.proc = proc
	t.Cleanup(proc.Kill)
}

// volatile starts the server again, with a disk that keeps what is synced from now on.
func (m *member) volatile(t testing.TB) {
	t.Helper()
	m.kill()
	m.disk = powercut.NewDisk(m.store())
	m.start(t)
}

// cutPower is kill, and takes what was not synced.
func (m *member) cutPower(t testing.TB) {
	t.Helper()
	m.kill()
	if err := m.disk.Cut(); err != nil {
		t.Fatal(err)
	}
}

func (m *member) kill()   { m.proc.Kill() }
func (m *member) resume() { m.proc.Resume() }

// pause returns when all threads of the server have stopped.
func (m *member) pause(t testing.TB) {
	t.Helper()
	if err := m.proc.Pause(); err != nil {
		t.Fatalf("server %s: %v", m.name, err)
	}
}

// leader is the server that leads the stream now, as the other servers say.
func (c *cluster) leader(t testing.TB) *member {
	t.Helper()
	var found *member
	eventually(t, "the stream has a leader", func() bool {
		name := leaderOf(t, c.conn)
		i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name })
		if i >= 0 {
			found = c.members[i]
		}
		return i >= 0
	})
	return found
}

func leaderOf(t testing.TB, conn *nats.Conn) string {
	t.Helper()
	if info := stream(t, conn); info != nil {
		return info.Cluster.Leader
	}
	return ""
}

// stream is what its leader says of it; nil: it did not answer.
func stream(t testing.TB, conn *nats.Conn) *jetstream.StreamInfo {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := js.Stream(ctx, "LOCKSTEP")
	if err != nil {
		return nil
	}
	return s.CachedInfo()
}

// TestProcess is a server, or a rival of a campaign.
func TestProcess(t *testing.T) {
	if rivals.Process(t, openFor) {
		return
	}
	config := os.Getenv("NATS_CONFIG")
	if config == "" {
		t.Skip("it is for the tests with servers in processes of their own")
	}
	o, err := server.ProcessConfigFile(config)
	if err == nil {
		o.NoLog, o.NoSigs = true, true
		var s *server.Server
		if s, err = server.NewServer(o); err == nil {
			s.Start()
			if s.ReadyForConnections(patience) {
				fmt.Println("ready")
				s.WaitForShutdown()
				return
			}
			err = fmt.Errorf("not ready after %v", patience)
		}
	}
	fmt.Println(err)
}
