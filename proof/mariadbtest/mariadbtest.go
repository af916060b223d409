// Package mariadbtest gives tests real MariaDB servers that can be killed, paused and restarted.
//
// Servers end with the test that made them. Nothing here uses a driver, so a bug of a driver cannot hide
// in its own test bed.
package mariadbtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/powercut"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A Server is one MariaDB with a fixed address and data directory, and at most one process at a time.
type Server struct {
	*daemon.Server
	move func(by time.Duration)
	disk *powercut.Disk
}

// Start runs a server with an empty database test and a user root without a password. settings are options
// of mariadbd, such as "innodb-flush-log-at-trx-commit=0".
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, settings, parts{})
}

// StartWithMovableClock is Start of a server whose clock [Server.MoveClock] moves. It needs a C compiler.
func StartWithMovableClock(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, settings, parts{movable: true})
}

// StartWithVolatileDisk is Start of a server whose power [Server.CutPower] cuts.
func StartWithVolatileDisk(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return launch(tb, settings, parts{volatile: true})
}

// CutPower is Kill of a server of [StartWithVolatileDisk], which also loses what it has not synced since
// it was started: see package powercut.
func (s *Server) CutPower() {
	s.With(func(p *daemon.Process) error {
		p.Kill()
		return s.disk.Cut()
	})
}

// MoveClock sets the clock of the server to so long after the true time. It is for servers of
// [StartWithMovableClock].
func (s *Server) MoveClock(by time.Duration) { s.move(by) }

var installed daemon.Template

// temporary makes a folder. Its name is short, since a path of a socket must be.
func temporary() (string, error) { return os.MkdirTemp("", "mariadbtest") }

// parts are those of a server that are not real.
type parts struct{ movable, volatile bool }

func launch(tb testing.TB, settings []string, unreal parts) *Server {
	tb.Helper()
	program, install := find(tb, "mariadbd"), find(tb, "mariadb-install-db")
	dir, err := temporary()
	if err != nil {
		tb.Fatalf("mariadbtest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	me, err := user.Current()
	if err != nil {
		tb.Fatalf("mariadbtest: %v", err)
	}
	data := filepath.Join(dir, "data")
	options := func(data string) []string {
		// in the common folder for temporary files, servers that start at once remove each other's
		return []string{"--no-defaults", "--user=" + me.Username, "--datadir=" + data, "--tmpdir=" + filepath.Dir(data), "--innodb-log-file-size=8M"}
	}
	if err := installed.Copy(data, temporary, func(data string) error {
		if out, err := exec.Command(install, append(options(data), "--auth-root-authentication-method=normal")...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		_ = os.Remove(filepath.Join(data, "auto.cnf")) // MySQL: the name of the server, which it makes if there is none
		return nil
	}); err != nil {
		tb.Fatalf("mariadbtest: %v", err)
	}
	var env []string
	var move func(by time.Duration)
	if unreal.movable {
		env, move = redistest.MovableClock(tb, dir)
	}
	disk, start := powercut.NewDisk(data), daemon.Start
	if unreal.volatile {
		start = disk.Start
	}
	serve := func(port *daemon.Port) (*daemon.Process, error) {
		args := append(options(data), "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port.Number), "--socket="+filepath.Join(dir, "socket"),
			"--innodb-buffer-pool-size=32M", "--max-connections=300", "--skip-name-resolve", "--performance-schema=OFF")
		for _, setting := range settings {
			args = append(args, "--"+setting)
		}
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), env...)
		p, err := start(dir, cmd)
		return daemon.Ready(p, err, func(log string) bool { return strings.Contains(log, "ready for connections") })
	}
	return &Server{daemon.Serve(tb, serve, (*daemon.Process).Kill), move, disk}
}

// DSN is how github.com/go-sql-driver/mysql is told of the server.
func (s *Server) DSN() string { return "root@tcp(" + s.Addr() + ")/test" }

// find returns the path of a program. Without it the test is left out. Debian has the server in a folder
// that is only in the PATH of root.
func find(tb testing.TB, program string) string {
	tb.Helper()
	_ = os.Getenv(redistest.VersionsEnv)
	for _, path := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	redistest.Missing(tb, "MariaDB is not installed")
	return ""
}
