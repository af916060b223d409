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
// The address of its Server is that for clients.
type Member struct {
	*daemon.Server

	Name string

	cluster   *Cluster
	dir       string
	peer      *daemon.Port
	wire      *wire // what the other members use to reach it
	joined    []string
	clock     string // of the environment
	moveClock func(by time.Duration)
}

// Fast makes a member answer before its data are on disk. Only a crash of the machine would show it.
const Fast = "--unsafe-no-fsync"

// Steady makes members keep their leader for 5 s without a word from it, where 1 s is usual: on a busy
// machine they would elect another one again and again, and answer nothing meanwhile. It is for tests
// that are not about that.
const Steady = "--election-timeout=5000"

// Start runs a cluster of so many members. The flags are those of etcd.
func Start(tb testing.TB, members int, flags ...string) *Cluster {
	tb.Helper()
	return start(tb, built(tb, program), members, flags)
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

// starting is full while two clusters start: many at once, as when the tests of a package begin, leave no
// time to those that run.
var starting = make(chan struct{}, 2)

func start(tb testing.TB, program string, members int, flags []string) *Cluster {
	tb.Helper()
	starting <- struct{}{}
	defer func() { <-starting }()
	c := &Cluster{tb: tb, program: program, flags: flags}
	for range members {
		c.prepare()
	}
	errs := make([]error, members)
	var starts sync.WaitGroup
	for i, m := range c.Members {
		m.joined = []string{"--initial-cluster", c.peers()}
		starts.Go(func() { m.Server, errs[i] = daemon.Launch(tb, m.start, (*daemon.Process).Kill) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return c
}

// peers names all members, as the flags of etcd do.
func (c *Cluster) peers() string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Name+"="+m.PeerURL())
	}
	return strings.Join(all, ",")
}

// prepare gives a new member its addresses.
func (c *Cluster) prepare() *Member {
	c.tb.Helper()
	m := &Member{Name: "m" + strconv.Itoa(c.made), cluster: c, dir: c.tb.TempDir()}
	m.clock, m.moveClock = redistest.ClockFile(c.tb, m.dir)
	c.made++
	var err error
	if m.peer, err = daemon.ReservePort(); err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(m.peer.Close)
	m.wire = c.wires.add(c.tb, m.peer.Addr())
	c.Members = append(c.Members, m)
	return m
}

const tool = "go.etcd.io/etcd/server/v3"

// module is the directory of module bench, whose tool is etcd. The module of the test replaces the root
// by its folder. (A binary that was built with -trimpath does not know where its source is.)
func module() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockstep-go/lockstep").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bench"), nil
}

// program and restorer are the paths of etcd and of etcdutl, which the go command builds and keeps in its
// cache.
var program, restorer = path(tool), path("go.etcd.io/etcd/etcdutl/v3")

func path(tool string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		_ = os.Getenv(redistest.VersionsEnv)
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
}

// built is a path. Without the program the test is left out.
func built(tb testing.TB, path func() (string, error)) string {
	tb.Helper()
	file, err := path()
	if err != nil {
		redistest.Missing(tb, "etcd can't be built: %v", err)
	}
	return file
}

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

func (m *Member) data() string { return filepath.Join(m.dir, "data") }

// start starts the process, and waits until it serves clients, which needs a leader.
func (m *Member) start(client *daemon.Port) (*daemon.Process, error) {
	url := "http://" + client.Addr()
	args := slices.Concat([]string{
		"--name", m.Name, "--data-dir", m.data(), "--log-level", "warn",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", "http://" + m.peer.Addr(), "--initial-advertise-peer-urls", m.PeerURL(),
	}, m.joined, m.cluster.flags)
	cmd := exec.Command(m.cluster.program, args...)
	cmd.Env = append(os.Environ(), m.clock)
	p, err := daemon.Start(m.dir, cmd)
	return daemon.Ready(p, err, func(string) bool {
		client := http.Client{Timeout: time.Second}
		r, err := client.Get(url + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// MoveClock moves the wall clock of a member of [StartWithMovableClocks]: it is by ahead of the clock of
// this machine, until the next call and across restarts. It returns when the member, which must run,
// says so.
func (m *Member) MoveClock(by time.Duration) {
	m.cluster.tb.Helper()
	m.moveClock(by)
	m.With(func(p *daemon.Process) error {
		err := p.Await(func(string) bool {
			said, err := m.clockSays()
			return err == nil && time.Until(said.Add(-by)).Abs() < 15*time.Second
		})
		if err != nil {
			err = fmt.Errorf("the clock of %s was moved by %v: %w", m.Name, by, err)
		}
		return err
	})
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
	m := c.prepare()
	if err := add(m.PeerURL()); err != nil {
		c.tb.Fatal(err)
	}
	m.joined = []string{"--initial-cluster", c.peers(), "--initial-cluster-state", "existing"}
	m.Server = daemon.Serve(c.tb, m.start, (*daemon.Process).Kill)
	return m
}

// Restore ends all members, gives them the data of a snapshot and starts them. The flags are those of
// `etcdutl snapshot restore`.
func (c *Cluster) Restore(snapshot string, flags ...string) {
	c.tb.Helper()
	program := built(c.tb, restorer)
	for _, m := range c.Members {
		m.Kill()
	}
	var starts sync.WaitGroup
	for _, m := range c.Members {
		if err := os.RemoveAll(m.data()); err != nil {
			c.tb.Fatal(err)
		}
		out, err := exec.Command(program, slices.Concat([]string{
			"snapshot", "restore", snapshot, "--name", m.Name, "--data-dir", m.data(),
			"--initial-cluster", c.peers(), "--initial-advertise-peer-urls", m.PeerURL(),
		}, flags)...).CombinedOutput()
		if err != nil {
			c.tb.Fatalf("etcdutl: %v\n%s", err, out)
		}
		starts.Go(m.Restart)
	}
	starts.Wait()
}

// Removed ends a member that the cluster has removed.
func (c *Cluster) Removed(m *Member) {
	m.Kill()
	c.Members = slices.DeleteFunc(c.Members, func(other *Member) bool { return other == m })
}

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
