package redistest

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file is for clusters and sentinels: servers that follow another one.

// CutReplication cuts s, a replica, off from its master until [Server.MendReplication]. Both still
// answer, and a sentinel sees a replica whose connection is broken. It returns when s has lost the
// connection.
func (s *Server) CutReplication() {
	s.tb.Helper()
	// Before its connection is up there is nothing to kill, and it would come up later.
	until(s.tb, "the replica follows its master", func() bool { return following(s) })
	must(s, "CONFIG", "SET", "masterauth", "refused by a master that has no password")
	must(s, "CLIENT", "KILL", "TYPE", "master")
	until(s.tb, "the replica has lost its master", func() bool { return !following(s) })
}

// MendReplication ends [Server.CutReplication], and returns when s has caught up.
func (s *Server) MendReplication() {
	s.tb.Helper()
	must(s, "CONFIG", "SET", "masterauth", "")
	until(s.tb, "the replica follows its master", func() bool { return following(s) })
}

// A Switchover is a master and its replica behind one address, which leads to the current master.
type Switchover struct {
	*Proxy
	First, Second *Server // the first master, and its replica, which replaces it
}

// StartSwitchover starts both, and returns when the replica has caught up.
func StartSwitchover(tb testing.TB, opts ...Option) *Switchover {
	tb.Helper()
	s := StartN(tb, 2, opts...)
	follow(s[1], s[0])
	return &Switchover{NewProxy(tb, s[0].Addr()), s[0], s[1]}
}

// Switch promotes the replica and makes the first master follow it. Both keep all their
// connections, and the first master answers what comes on them. From now on the address leads to
// the new master.
func (s *Switchover) Switch() {
	s.tb.Helper()
	must(s.First, "WAIT", "1", "5000")
	until(s.tb, "the replica has all that the master has", func() bool {
		return field(s.First, "master_repl_offset", "INFO", "replication") == field(s.Second, "slave_repl_offset", "INFO", "replication")
	})
	must(s.Second, "REPLICAOF", "NO", "ONE")
	follow(s.First, s.Second)
	s.Lead(s.Second.Addr())
}

func follow(replica, master *Server) {
	host, port, _ := net.SplitHostPort(master.Addr())
	must(master, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	must(replica, "REPLICAOF", host, port)
	until(replica.tb, "the replica follows its master", func() bool { return !replica.IsMaster() && following(replica) })
}

// IsMaster tells whether s says that it is a master.
func (s *Server) IsMaster() bool { return field(s, "role", "INFO", "replication") == "master" }

// following tells whether s is a master, or a replica with a connection to its master.
func following(s *Server) bool {
	return s.IsMaster() || field(s, "master_link_status", "INFO", "replication") == "up"
}

// field returns the value of one line of an INFO, or "" without such a line or an answer.
func field(s *Server, name string, command ...string) string {
	reply, _ := s.call(time.Second, command...)
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// living returns the servers that have a process, paused or not.
func living(servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return !s.Alive() })
}

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr()
	}
	return all
}

// at returns the server with that address, or nil.
func at(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// must is Do for a command that cannot fail.
func must(s *Server, args ...string) any {
	s.tb.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		s.tb.Fatalf("redistest: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return reply
}

// until polls until holds returns true, for at most three minutes: when a machine stands still for 2 s, a
// Sentinel does nothing for 30 s.
func until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: not within three minutes: %s", what)
		}
	}
}
