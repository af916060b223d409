// Package pgtest gives tests real PostgreSQL servers that can be killed, paused, restarted and promoted,
// and a pooler in front of them.
//
// Servers end with the test that made them. Nothing here uses a driver, so a bug of a driver cannot hide
// in its own test bed.
package pgtest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/powercut"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A Server is one PostgreSQL with a fixed address and data directory, and at most one process at a time.
type Server struct {
	*daemon.Server
	tb   testing.TB
	dir  string                 // of the data, the logs and the sockets
	move func(by time.Duration) // its clock; nil if it can't be moved
	disk *powercut.Disk
}

// Start runs a server with a database postgres and a superuser postgres, whom it trusts without a
// password. settings are those of postgresql.conf, such as "fsync=off".
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, initialize(tb), settings, parts{})
}

// StartWithMovableClock is Start of a server whose clock [Server.MoveClock] moves. It needs a C
// compiler.
func StartWithMovableClock(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, initialize(tb), settings, parts{movable: true})
}

// StartWithVolatileDisk is Start of a server whose power [Server.CutPower] cuts.
func StartWithVolatileDisk(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, initialize(tb), settings, parts{volatile: true})
}

var initialized daemon.Template

func initialize(tb testing.TB) func(dir string) error {
	bin := Programs(tb)
	return func(dir string) error {
		return initialized.Copy(filepath.Join(dir, "data"), temporary, func(data string) error {
			return run(filepath.Dir(data), filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync",
				"-E", "UTF8", "--locale", "C")
		})
	}
}

// Standby runs a server that follows s. It is asynchronous, unless the settings of s say otherwise.
func (s *Server) Standby(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	bin := Programs(tb)
	return launch(tb, func(dir string) error {
		return run(dir, filepath.Join(bin, "pg_basebackup"), "-D", filepath.Join(dir, "data"), "-R", "--no-sync", "-c", "fast",
			"-d", s.DSN()+" application_name=standby")
	}, settings, parts{})
}

// parts are those of a server that are not real.
type parts struct{ movable, volatile bool }

func launch(tb testing.TB, fill func(dir string) error, settings []string, unreal parts) *Server {
	tb.Helper()
	dir := folder(tb)
	if err := fill(dir); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { forgetMemory(dir) })
	bin := Programs(tb)
	s := &Server{tb: tb, dir: dir, disk: powercut.NewDisk(filepath.Join(dir, "data"))}
	start := daemon.Start
	if unreal.volatile {
		start = s.disk.Start
	}
	var env []string
	if unreal.movable {
		env, s.move = redistest.MovableClock(tb, dir)
	}
	s.Server = daemon.Serve(tb, func(port *daemon.Port) (*daemon.Process, error) {
		cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"))
		for _, setting := range slices.Concat([]string{
			"listen_addresses=127.0.0.1", fmt.Sprintf("port=%d", port.Number), "unix_socket_directories=" + dir,
			"max_connections=300", "shared_buffers=32MB", "timezone=UTC", "logging_collector=off", "log_min_messages=warning",
			"dynamic_shared_memory_type=mmap", // a server that is killed leaves nothing outside of its folder
		}, settings) {
			cmd.Args = append(cmd.Args, "-c", setting)
		}
		cmd.Env = append(os.Environ(), env...)
		asUser(cmd)
		p, err := start(dir, cmd)
		return daemon.Ready(p, err, func(log string) bool { return strings.Contains(log, "ready to accept") }) // a standby: read-only connections
	}, crash)
	return s
}

// crash ends all processes of a server with SIGKILL at once. A kill of the first process alone would
// leave the others, which still have the memory of the server.
func crash(p *daemon.Process) {
	var children []int
	if p.Pause() == nil { // so that it starts no other process meanwhile
		children = signalChildren(p.PID, sigKill)
	}
	p.Kill()
	awaitEnd(children) // a new server refuses the data while one of them runs
}

// CutPower is Kill of a server of [StartWithVolatileDisk], which also loses what it has not synced since
// it was started: see package powercut.
func (s *Server) CutPower() {
	s.With(func(p *daemon.Process) error {
		crash(p)
		forgetMemory(s.dir)
		return s.disk.Cut()
	})
}

// forgetMemory removes the segment of shared memory that a server leaves if it was killed.
func forgetMemory(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return // it has removed both
	}
	const line = 6 // key and id of the segment
	if lines := strings.Split(string(text), "\n"); len(lines) > line {
		if segment := strings.Fields(lines[line]); len(segment) == 2 {
			_ = exec.Command("ipcrm", "-m", segment[1]).Run() // it is small
		}
	}
}

// DSN is how drivers are told of the server, as key=value.
func (s *Server) DSN() string { return connString(s.Port()) }

func connString(port int) string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", port)
}

// MoveClock sets the wall clock of the server: it is by ahead of the clock of this machine, until
// the next call and across restarts. It is for servers of [StartWithMovableClock].
func (s *Server) MoveClock(by time.Duration) { s.move(by) }

// Stop ends the server as an operator would, without waiting for clients.
func (s *Server) Stop() {
	s.With(func(p *daemon.Process) error {
		p.Signal(os.Interrupt)
		<-p.Done()
		return nil
	})
}

// Pause stops all processes of the server with SIGSTOP. The kernel still accepts connections and bytes
// for it, and nothing is answered.
func (s *Server) Pause() {
	s.With(func(p *daemon.Process) error {
		err := p.Pause()
		if err == nil {
			signalChildren(p.PID, sigStop)
		}
		return err
	})
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.With(func(p *daemon.Process) error {
		signalChildren(p.PID, sigCont)
		p.Resume()
		return nil
	})
}

// Promote makes a standby take writes.
func (s *Server) Promote() {
	s.With(func(*daemon.Process) error {
		return run(s.dir, filepath.Join(Programs(s.tb), "pg_ctl"), "promote", "-w", "-D", filepath.Join(s.dir, "data"))
	})
}

// Programs is the folder with the programs of PostgreSQL. Without them the test is left out.
func Programs(tb testing.TB) string {
	tb.Helper()
	_ = os.Getenv(redistest.VersionsEnv)
	if path, err := exec.LookPath("pg_basebackup"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && isThere(filepath.Join(filepath.Dir(path), "postgres")) {
			return filepath.Dir(path)
		}
	}
	// Debian keeps each version in a folder of its own
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		redistest.Missing(tb, "PostgreSQL is not installed")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }))
}

func isThere(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func run(dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	asUser(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, out)
	}
	return nil
}

// temporary makes a folder that the server's user may use. PostgreSQL refuses to run as root.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		return "", err
	}
	return dir, give(dir)
}

// folder is temporary until the test ends.
func folder(tb testing.TB) string {
	tb.Helper()
	dir, err := temporary()
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return dir
}
