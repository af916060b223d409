package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/daemon"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// Pooler is [Server.StartPooler], and returns how drivers are told of it.
func (s *Server) Pooler(tb testing.TB) (dsn string) {
	tb.Helper()
	return connString(s.StartPooler(tb).port.Number)
}

// A Pooler is one pgbouncer with a fixed address.
type Pooler struct {
	tb      testing.TB
	program string
	dir     string
	port    *daemon.Port

	mu    sync.Mutex
	proc  *daemon.Process
	ended bool
}

// StartPooler runs a pgbouncer in front of the server that gives each transaction a connection of
// its own.
func (s *Server) StartPooler(tb testing.TB) *Pooler {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		redistest.Missing(tb, "pgbouncer is not installed")
	}
	dir := folder(tb)
	port, err := daemon.ReservePort()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
`, s.port.Number, port.Number)
	if err := os.WriteFile(filepath.Join(dir, configFile), []byte(text), 0o644); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	p := &Pooler{tb: tb, program: program, dir: dir, port: port}
	if err := p.start(); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		p.proc.Kill()
		port.Close()
	})
	return p
}

const configFile = "pgbouncer.ini"

func (p *Pooler) start() error {
	cmd := exec.Command(p.program, filepath.Join(p.dir, configFile))
	asUser(cmd)
	proc, err := daemon.Start(p.dir, cmd)
	if err != nil {
		return err
	}
	err = proc.Await(func(string) bool {
		conn, err := net.DialTimeout("tcp", p.port.Addr(), time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if err != nil {
		proc.Kill()
		return err
	}
	p.proc = proc
	return nil
}

// Addr is host:port. It stays the same across restarts.
func (p *Pooler) Addr() string { return p.port.Addr() }

// Restart kills the process and starts another one.
func (p *Pooler) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.proc.Kill()
	if err := p.start(); err != nil {
		p.tb.Errorf("pgtest: Restart of %s: %v", p.Addr(), err)
	}
}
