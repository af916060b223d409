package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// MasterName is what the sentinels of [StartSentinel] call their master.
const MasterName = "locks"

// A Sentinel is a master with its replicas, and three sentinels that watch over them. Its methods are for the goroutine
// of the test.
type Sentinel struct {
	tb        testing.TB
	servers   []*Server // the first one was the master at the start
	sentinels []*Server
}

const (
	sentinels = 3
	majority  = "2"

	calmDownAfter  = "30000" // ms: long enough for a machine that is busy
	alertDownAfter = "1000"  // ms: once the master was killed; ten times this is how far behind a replica may be to be chosen
)

// StartSentinel runs a master, its replicas and the sentinels, and returns when the replicas follow their master and the
// sentinels know one another and all of them.
func StartSentinel(tb testing.TB, replicas int) *Sentinel {
	tb.Helper()
	s := &Sentinel{tb: tb, servers: StartN(tb, 1+replicas, WithArgs("--repl-diskless-sync-delay", "0"))}
	host, port, _ := net.SplitHostPort(s.servers[0].Addr())
	for _, r := range s.servers[1:] {
		must(r, "REPLICAOF", host, port)
	}
	for _, r := range s.servers[1:] {
		until(tb, "a replica follows the master", func() bool { return following(r) })
	}
	s.watch(host, port)
	for _, watcher := range s.sentinels {
		until(tb, "the sentinels know everyone", func() bool {
			return s.sees(watcher, "num-slaves") == fmt.Sprint(replicas) &&
				s.sees(watcher, "num-other-sentinels") == fmt.Sprint(sentinels-1)
		})
	}
	return s
}

// watch starts the sentinels. What they find out they write into their configuration.
func (s *Sentinel) watch(host, port string) {
	s.sentinels = make([]*Server, sentinels)
	errs := make([]error, sentinels)
	var starts sync.WaitGroup
	for i := range sentinels {
		dir := s.tb.TempDir()
		file := filepath.Join(dir, "sentinel.conf")
		conf := strings.Join([]string{
			"sentinel monitor " + MasterName + " " + host + " " + port + " " + majority,
			"sentinel down-after-milliseconds " + MasterName + " " + calmDownAfter,
			"sentinel failover-timeout " + MasterName + " 3000", // before another try, if they could not agree
			"",
		}, "\n")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			s.tb.Fatalf("redistest: %v", err)
		}
		starts.Go(func() { s.sentinels[i], errs[i] = launch(s.tb, dir, config{sentinel: file}, reservePort) })
	}
	starts.Wait()
	for i, err := range errs {
		if err != nil {
			s.tb.Fatalf("redistest: %v", err)
		}
		// Redis before 7 does not know this, and is slower to start. A sentinel that finds itself late stands back for
		// half a minute; on a busy machine it is often late.
		_, _ = s.sentinels[i].Do("SENTINEL", "DEBUG", "publish-period", "100", "info-period", "500", "tilt-trigger", "60000")
	}
}

// sees is what a sentinel says of the master.
func (s *Sentinel) sees(watcher *Server, what string) string {
	reply, _ := watcher.Do("SENTINEL", "MASTER", MasterName)
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == what {
			return fmt.Sprint(fields[i+1])
		}
	}
	return ""
}

// Addrs returns the addresses of the sentinels, for a client to ask.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Servers returns the servers that are watched over; the first one was the master at the start.
func (s *Sentinel) Servers() []*Server { return slices.Clone(s.servers) }

// Master returns the server that is the master for all sentinels.
func (s *Sentinel) Master() *Server {
	s.tb.Helper()
	var m *Server
	until(s.tb, "the sentinels agree", func() bool { m = s.agreed(); return m != nil })
	return m
}

// Replicas returns the living servers besides the master.
func (s *Sentinel) Replicas() []*Server {
	s.tb.Helper()
	m := s.Master()
	return slices.DeleteFunc(living(s.servers), func(other *Server) bool { return other == m })
}

// KillMaster kills the master, and has the sentinels notice within a second.
func (s *Sentinel) KillMaster() *Server {
	s.tb.Helper()
	dead := s.Master()
	s.downAfter(alertDownAfter)
	dead.Kill()
	return dead
}

// AwaitFailover waits until the sentinels agree on another master than dead, which says so too.
func (s *Sentinel) AwaitFailover(dead *Server) *Server {
	s.tb.Helper()
	until(s.tb, "another master", func() bool {
		m := s.agreed()
		return m != nil && m != dead && m.IsMaster()
	})
	s.downAfter(calmDownAfter)
	return s.agreed()
}

func (s *Sentinel) downAfter(ms string) {
	s.tb.Helper()
	for _, watcher := range living(s.sentinels) {
		must(watcher, "SENTINEL", "SET", MasterName, "down-after-milliseconds", ms)
	}
}

// agreed is the master as all living sentinels see it; nil if they differ.
func (s *Sentinel) agreed() *Server {
	var addr string
	for i, watcher := range living(s.sentinels) {
		reply, _ := watcher.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return nil
		}
		sees := net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
		if i > 0 && sees != addr {
			return nil
		}
		addr = sees
	}
	return at(s.servers, addr)
}
