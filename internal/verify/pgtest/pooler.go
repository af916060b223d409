package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/daemon"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// Pooler runs a pgbouncer in front of the server that gives each transaction a connection of its own, and
// returns how drivers are told of it.
func (s *Server) Pooler(tb testing.TB) (dsn string) {
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
	config := filepath.Join(dir, "pgbouncer.ini")
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
ignore_startup_parameters = extra_float_digits
`, s.port.Number, port.Number)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	cmd := exec.Command(program, config)
	asUser(cmd)
	proc, err := daemon.Start(dir, cmd)
	if err == nil {
		err = proc.Await(func(string) bool {
			conn, err := net.DialTimeout("tcp", port.Addr(), time.Second)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		proc.Kill()
		port.Close()
	})
	return connString(port.Number)
}
