// Package etcdtest gives tests real clusters of etcd, whose members can be killed, paused, restarted,
// cut off from each other, added and removed.
//
// Members end with the test that made them. Nothing here uses the client library of etcd, so a bug of
// it cannot hide in its own test bed. The program is built from the tool of module bench.
package etcdtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/goclock"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A Cluster is some members, which reach each other through proxies.
type Cluster struct {
	tb      testing.TB
	program string
	flags   []string
	wires   wires
	made    int // how many members it has had

	Members []*Member
}

// A Member is one etcd with fixed addresses and a data directory, and at most one process at a time.
type Member struct {
	Name string

	cluster      *Cluster
	dir          string
	client, peer *daemon.Port
	wire         *wire // what the other members use to reach it
	joined       []string
	clock        string // of the environment
	moveClock    func(by time.Duration)

	mu   sync.Mutex
	proc *daemon.Process
}

// Fast makes a member answer before its data are on disk. Only a crash of the machine would show it.
const Fast = "--unsafe-no-fsync"

// Start runs a cluster of so many members. The flags are those of etcd.
func Start(tb testing.TB, members int, flags ...string) *Cluster {
	tb.Helper()
	path, err := program()
	if err != nil {
		redistest.Missing(tb, "etcd can't be built: %v", err)
	}
	return start(tb, path, members, flags)
}

// StartWithMovableClocks is Start of members whose clocks [Member.MoveClock] moves. It builds etcd and
// the standard library, which takes minutes the first time.
func StartWithMovableClocks(tb testing.TB, members int, flags ...string) *Cluster {
	tb.Helper()
	dir, err := module()
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, goclock.Build(tb, dir, "build", tool), members, flags)
}

func start(tb testing.TB, program string, members int, flags []string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, program: program, flags: flags}
	var all []string
	for range members {
		m := c.prepare()
		all = append(all, m.Name+"="+m.PeerURL())
	}
	for _, m := range c.Members {
		m.joined = []string{"--initial-cluster", strings.Join(all, ",")}
		if err := m.start(); err != nil {
			tb.Fatal(err)
		}
	}
	for _, m := range c.Members {
		if err := m.await(); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// prepare gives a new member its addresses.
func (c *Cluster) prepare() *Member {
	c.tb.Helper()
	m := &Member{Name: "m" + strconv.Itoa(c.made), cluster: c, dir: c.tb.TempDir()}
	m.clock, m.moveClock = redistest.ClockFile(c.tb, m.dir)
	c.made++
	for _, port := range []**daemon.Port{&m.client, &m.peer} {
		p, err := daemon.ReservePort()
		if err != nil {
			c.tb.Fatal(err)
		}
		c.tb.Cleanup(p.Close)
		*port = p
	}
	m.wire = c.wires.add(c.tb, m.peer.Addr())
	c.tb.Cleanup(m.Kill)
	c.Members = append(c.Members, m)
	return m
}

const tool = "go.etcd.io/etcd/server/v3"

// module is the directory of module bench, whose tool is etcd.
func module() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("this binary does not know where its source is")
	}
	return filepath.Join(filepath.Dir(here), "../../bench"), nil
}

// program is the path of etcd, which the go command builds and keeps in its cache.
var program = sync.OnceValues(func() (string, error) {
	dir, err := module()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-n", tool)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go tool in module bench: %w\n%s", err, stderr.String())
	}
	path := strings.TrimSpace(string(out))
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
})

// Endpoints are the addresses of the members for clients.
func (c *Cluster) Endpoints() (all []string) {
	for _, m := range c.Members {
		all = append(all, m.URL())
	}
	return all
}

// URL is the address for clients.
func (m *Member) URL() string { return "http://" + m.Addr() }

// PeerURL is the address for other members.
func (m *Member) PeerURL() string { return "http://" + m.wire.addr() }

// start starts the process.
func (m *Member) start() error {
	args := slices.Concat([]string{
		"--name", m.Name, "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "warn",
		"--listen-client-urls", m.URL(), "--advertise-client-urls", m.URL(),
		"--listen-peer-urls", "http://" + m.peer.Addr(), "--initial-advertise-peer-urls", m.PeerURL(),
	}, m.joined, m.cluster.flags)
	cmd := exec.Command(m.cluster.program, args...)
	cmd.Env = append(os.Environ(), m.clock)
	proc, err := daemon.Start(m.dir, cmd)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proc = proc
	return err
}

// await waits until the member serves clients, which needs a leader.
func (m *Member) await() error {
	return m.proc.Await(func(string) bool {
		client := http.Client{Timeout: time.Second}
		r, err := client.Get(m.URL() + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// Kill ends the process like a crash. It does nothing if there is none.
func (m *Member) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil {
		m.proc.Resume()
		m.proc.Kill()
		m.proc = nil
	}
}

// Restart starts a member that was killed, with the data that it had.
func (m *Member) Restart() {
	m.cluster.tb.Helper()
	err := m.start()
	if err == nil {
		err = m.await()
	}
	if err != nil {
		m.cluster.tb.Fatal(err)
	}
}

// Pause stops the process with SIGSTOP, and Resume lets it go on.
func (m *Member) Pause() {
	m.cluster.tb.Helper()
	if err := m.proc.Pause(); err != nil {
		m.cluster.tb.Fatal(err)
	}
}

// Resume lets a paused member go on.
func (m *Member) Resume() { m.proc.Resume() }

// MoveClock moves the wall clock of a member of [StartWithMovableClocks]: it is by ahead of the clock of
// this machine, until the next call and across restarts. It returns when the member, which must run,
// says so.
func (m *Member) MoveClock(by time.Duration) {
	m.cluster.tb.Helper()
	m.moveClock(by)
	err := m.proc.Await(func(string) bool {
		said, err := m.clockSays()
		return err == nil && time.Until(said.Add(-by)).Abs() < 15*time.Second
	})
	if err != nil {
		m.cluster.tb.Fatalf("the clock of %s was moved by %v: %v", m.Name, by, err)
	}
}

// clockSays is the date of an answer.
func (m *Member) clockSays() (time.Time, error) {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(m.URL() + "/version")
	if err != nil {
		return time.Time{}, err
	}
	defer r.Body.Close()
	return http.ParseTime(r.Header.Get("Date"))
}

// Join runs one more member. add tells the cluster of it, by its address for other members.
func (c *Cluster) Join(add func(peerURL string) error) *Member {
	c.tb.Helper()
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Name+"="+m.PeerURL())
	}
	m := c.prepare()
	if err := add(m.PeerURL()); err != nil {
		c.tb.Fatal(err)
	}
	all = append(all, m.Name+"="+m.PeerURL())
	m.joined = []string{"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "existing"}
	m.Restart()
	return m
}

// Removed ends a member that the cluster has removed.
func (c *Cluster) Removed(m *Member) {
	m.Kill()
	c.Members = slices.DeleteFunc(c.Members, func(other *Member) bool { return other == m })
}

// Addr is the address for clients, as host:port.
func (m *Member) Addr() string { return m.client.Addr() }

// ID is the id of the member, in the form that members use among themselves.
func (m *Member) ID() string {
	m.cluster.tb.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + m.peer.Addr() + "/members")
	if err != nil {
		m.cluster.tb.Fatal(err)
	}
	defer r.Body.Close()
	var all []struct {
		ID   uint64 `json:"id"`
		Name string `json:"name"`
	}
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		m.cluster.tb.Fatal(err)
	}
	for _, other := range all {
		if other.Name == m.Name {
			return strconv.FormatUint(other.ID, 16)
		}
	}
	m.cluster.tb.Fatalf("member %s does not know itself: %+v", m.Name, all)
	return ""
}

// Isolate cuts a member off from all others. Clients still reach it.
func (c *Cluster) Isolate(m *Member) { c.tb.Helper(); c.wires.isolate(m.ID(), m.wire) }

// Heal connects all members again.
func (c *Cluster) Heal() { c.wires.isolate("", nil) }
