package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/lockstep-go/lockstep/internal/verify/child"
	"github.com/lockstep-go/lockstep/internal/verify/daemon"
)

const patience = 30 * time.Second // for a busy machine

// A cluster has members in processes of their own, which can be killed and stopped.
type cluster struct {
	members []*member
	client  *clientv3.Client
}

type member struct {
	name, dir    string
	client, peer *daemon.Port
	config       []string // variables for the process
	cmd          *exec.Cmd
}

// start starts so many members and a client of all of them. env changes their configuration, see
// TestProcess.
func start(t *testing.T, members int, env ...string) *cluster {
	t.Helper()
	c := &cluster{}
	var all, endpoints []string
	for i := range members {
		m := &member{name: fmt.Sprint("m", i), dir: t.TempDir(), client: port(t), peer: port(t)}
		c.members = append(c.members, m)
		all = append(all, m.name+"=http://"+m.peer.Addr())
		endpoints = append(endpoints, "http://"+m.client.Addr())
	}
	for _, m := range c.members {
		m.config = append([]string{
			"ETCD_MEMBER=" + m.name, "ETCD_DIR=" + m.dir, "ETCD_CLIENT=http://" + m.client.Addr(), "ETCD_PEER=http://" + m.peer.Addr(),
			"ETCD_CLUSTER=" + strings.Join(all, ","),
		}, env...)
	}
	ready := make([]<-chan string, members)
	for i, m := range c.members {
		ready[i] = m.start(t)
	}
	for i, m := range c.members {
		select {
		case line := <-ready[i]:
			if line != "ready" {
				t.Fatalf("member %s: %s", m.name, line)
			}
		case <-time.After(patience):
			t.Fatalf("member %s is not ready after %v", m.name, patience)
		}
	}
	c.client = dial(t, endpoints...)
	return c
}

func port(t *testing.T) *daemon.Port {
	t.Helper()
	p, err := daemon.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// start starts the process of a member, which says ready, or what went wrong.
func (m *member) start(t *testing.T) <-chan string {
	t.Helper()
	cmd, _, out := child.Start(t, m.config...)
	m.cmd = cmd
	line := make(chan string, 1)
	go func() {
		text, err := out.ReadString('\n')
		if err != nil {
			text = err.Error()
		}
		line <- strings.TrimSpace(text)
		_, _ = bufio.NewReader(out).Discard(1 << 30) // so that it does not block
	}()
	return line
}

func (m *member) kill()   { _ = m.cmd.Process.Kill(); _ = m.cmd.Wait() }
func (m *member) pause()  { _ = m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *member) resume() { _ = m.cmd.Process.Signal(syscall.SIGCONT) }

// restart starts a member again that was killed.
func (m *member) restart(t *testing.T) {
	t.Helper()
	select {
	case line := <-m.start(t):
		if line != "ready" {
			t.Fatalf("member %s: %s", m.name, line)
		}
	case <-time.After(patience):
		t.Fatalf("member %s is not ready after %v", m.name, patience)
	}
}

// leader is the member that leads now.
func (c *cluster) leader(t *testing.T) *member {
	t.Helper()
	var found *member
	eventually(t, "a member leads", func() bool {
		for _, m := range c.members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			state, err := c.client.Status(ctx, "http://"+m.client.Addr())
			cancel()
			if err == nil && state.Leader == state.Header.MemberId {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestProcess is a member.
func TestProcess(t *testing.T) {
	name := os.Getenv("ETCD_MEMBER")
	if name == "" {
		t.Skip("it is for the tests with a cluster")
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = name, os.Getenv("ETCD_DIR"), os.Getenv("ETCD_CLUSTER")
	c.LogLevel, c.Logger, c.LogOutputs = "fatal", "zap", []string{"/dev/null"}
	address := func(of string) []url.URL {
		u, err := url.Parse(os.Getenv(of))
		if err != nil {
			t.Fatal(err)
		}
		return []url.URL{*u}
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = address("ETCD_CLIENT"), address("ETCD_CLIENT")
	c.ListenPeerUrls, c.AdvertisePeerUrls = address("ETCD_PEER"), address("ETCD_PEER")
	if os.Getenv("ETCD_SMALL") != "" {
		c.QuotaBackendBytes = 4 << 20
	}
	server, err := embed.StartEtcd(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	select {
	case <-server.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-server.Err():
		fmt.Println(err)
		return
	}
	<-server.Server.StopNotify()
}
