package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// MasterName is the name of the master for the sentinels of [StartSentinel].
const MasterName = "locks"

// A Sentinel is a master with its replicas, and three sentinels that watch them. Only the goroutine
// of the test may call its methods.
type Sentinel struct {
	tb        testing.TB
	servers   []*Server // the first one was the master at the start
	sentinels []*Server
	killed    time.Time // when the last master was killed
}

const (
	sentinels = 3
	majority  = "2"

	calmDownAfter  = 30 * time.Second // long enough for a busy machine
	alertDownAfter = time.Second      // once the master was killed

	failoverTimeout  = "3000"          // ms; sentinels wait twice as long before the next failover
	betweenFailovers = 8 * time.Second // more than that
)

// StartSentinel runs a master, its replicas and the sentinels. It returns when the replicas follow
// their master and the sentinels know all of them and each other. The options are for the master
// and the replicas.
func StartSentinel(tb testing.TB, replicas int, opts ...Option) *Sentinel {
	tb.Helper()
	opts = append([]Option{WithArgs("--repl-diskless-sync-delay", "0")}, opts...)
	s := &Sentinel{tb: tb, servers: StartN(tb, 1+replicas, opts...)}
	host, port, _ := net.SplitHostPort(s.servers[0].Addr())
	for _, r := range s.servers[1:] {
		must(r, "REPLICAOF", host, port)
	}
	for _, r := range s.servers[1:] {
		until(tb, "a replica follows the master", func() bool { return following(r) })
	}
	s.watch(host, port)
	for _, watcher := range s.sentinels {
		until(tb, "the sentinels know all servers", func() bool {
			return s.sees(watcher, "num-slaves") == fmt.Sprint(replicas) &&
				s.sees(watcher, "num-other-sentinels") == fmt.Sprint(sentinels-1)
		})
	}
	return s
}

// watch starts the sentinels. They write what they learn into their configuration files.
func (s *Sentinel) watch(host, port string) {
	s.sentinels = make([]*Server, sentinels)
	errs := make([]error, sentinels)
	var starts sync.WaitGroup
	for i := range sentinels {
		dir := s.tb.TempDir()
		file := filepath.Join(dir, "sentinel.conf")
		conf := strings.Join([]string{
			"sentinel monitor " + MasterName + " " + host + " " + port + " " + majority,
			"sentinel down-after-milliseconds " + MasterName + " " + strconv.FormatInt(calmDownAfter.Milliseconds(), 10),
			"sentinel failover-timeout " + MasterName + " " + failoverTimeout,
			"",
		}, "\n")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			s.tb.Fatalf("redistest: %v", err)
		}
		starts.Go(func() { s.sentinels[i], errs[i] = launch(s.tb, dir, config{sentinel: file}) })
	}
	starts.Wait()
	for i, err := range errs {
		if err != nil {
			s.tb.Fatalf("redistest: %v", err)
		}
		// Redis before 7 does not know this, and is slower to start. A sentinel whose timers are
		// late does nothing for half a minute, which is frequent on a busy machine.
		_, _ = s.sentinels[i].Do("SENTINEL", "DEBUG", "publish-period", "100", "info-period", "500", "tilt-trigger", "60000")
	}
}

// sees returns a property of the master, as a sentinel sees it.
func (s *Sentinel) sees(watcher *Server, what string) string {
	reply, _ := watcher.Do("SENTINEL", "MASTER", MasterName)
	return properties(reply)[what]
}

// properties makes a map of a list in which names and values alternate.
func properties(reply any) map[string]string {
	fields, _ := reply.([]any)
	all := make(map[string]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		all[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	return all
}

// Addrs returns the addresses of the sentinels, for a client.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Sentinels returns the sentinels.
func (s *Sentinel) Sentinels() []*Server { return slices.Clone(s.sentinels) }

// Servers returns the master and the replicas. The first one was the master at the start.
func (s *Sentinel) Servers() []*Server { return slices.Clone(s.servers) }

// Master waits until all sentinels see the same master, and returns it.
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

// Prefer makes the sentinels promote r rather than another replica, and returns when they know.
func (s *Sentinel) Prefer(r *Server) {
	s.tb.Helper()
	for _, other := range s.servers {
		priority := "100"
		if other == r {
			priority = "1"
		}
		must(other, "CONFIG", "SET", "replica-priority", priority)
	}
	for _, watcher := range living(s.sentinels) {
		until(s.tb, "the sentinels know which replica to prefer", func() bool {
			return !slices.ContainsFunc(s.replicasOf(watcher), func(p map[string]string) bool {
				return (p["slave-priority"] == "1") != (net.JoinHostPort(p["ip"], p["port"]) == r.Addr())
			})
		})
	}
}

// KillMaster kills the master, and makes the sentinels notice within a second. If a replica has
// been cut off, they notice later: they promote no replica that was cut off for more than ten times
// as long.
func (s *Sentinel) KillMaster() *Server {
	s.tb.Helper()
	dead := s.Master()
	notice := alertDownAfter
	for _, r := range s.Replicas() {
		cutOff, _ := strconv.Atoi(field(r, "master_link_down_since_seconds", "INFO", "replication"))
		notice = max(notice, time.Duration(cutOff)*time.Second/5)
	}
	s.downAfter(notice)
	dead.Kill()
	s.killed = time.Now()
	return dead
}

// AwaitFailover waits until the sentinels agree on another master than dead, and that server
// agrees.
func (s *Sentinel) AwaitFailover(dead *Server) *Server {
	s.tb.Helper()
	until(s.tb, "another master", func() bool {
		m := s.agreed()
		return m != nil && m != dead && m.IsMaster()
	})
	s.downAfter(calmDownAfter)
	return s.agreed()
}

// AwaitReplicas waits until all servers run, the sentinels find nothing wrong, and the replicas
// have all data of the master. It also waits for the time that sentinels need between two
// failovers, so that the next one begins as soon as the master is gone.
func (s *Sentinel) AwaitReplicas() {
	s.tb.Helper()
	m := s.Master()
	_, port, _ := net.SplitHostPort(m.Addr())
	for _, r := range s.servers {
		until(s.tb, "every other server follows the master", func() bool {
			return r == m || following(r) && field(r, "master_port", "INFO", "replication") == port
		})
	}
	for _, watcher := range living(s.sentinels) {
		until(s.tb, "the sentinels find nothing wrong", func() bool {
			return s.sees(watcher, "flags") == "master" && s.well(watcher) == len(s.servers)-1
		})
	}
	until(s.tb, "the sentinels would fail over again", func() bool { return time.Since(s.killed) > betweenFailovers })
}

// well returns how many replicas are well for a sentinel.
func (s *Sentinel) well(watcher *Server) (n int) {
	for _, p := range s.replicasOf(watcher) {
		if p["flags"] == "slave" && p["master-link-status"] == "ok" {
			n++
		}
	}
	return n
}

// replicasOf returns the properties of each replica, as a sentinel sees it.
func (s *Sentinel) replicasOf(watcher *Server) (all []map[string]string) {
	reply, _ := watcher.Do("SENTINEL", "REPLICAS", MasterName)
	replicas, _ := reply.([]any)
	for _, r := range replicas {
		all = append(all, properties(r))
	}
	return all
}

func (s *Sentinel) downAfter(d time.Duration) {
	s.tb.Helper()
	for _, watcher := range living(s.sentinels) {
		must(watcher, "SENTINEL", "SET", MasterName, "down-after-milliseconds", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// agreed returns the master for all living sentinels, or nil if they differ.
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
