package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// Pooler is [Server.StartPooler], and returns how drivers are told of it.
func (s *Server) Pooler(tb testing.TB) (dsn string) {
	tb.Helper()
	return connString(s.StartPooler(tb).Port())
}

// StartPooler runs a pgbouncer in front of the server that gives each transaction a connection of
// its own.
func (s *Server) StartPooler(tb testing.TB) *daemon.Server {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		redistest.Missing(tb, "pgbouncer is not installed")
	}
	dir := folder(tb)
	file := filepath.Join(dir, "pgbouncer.ini")
	return daemon.Serve(tb, func(port *daemon.Port) (*daemon.Process, error) {
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
`, s.Port(), port.Number)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
		cmd := exec.Command(program, file)
		asUser(cmd)
		p, err := daemon.Start(dir, cmd)
		return daemon.Ready(p, err, func(string) bool {
			conn, err := net.DialTimeout("tcp", port.Addr(), time.Second)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}, (*daemon.Process).Kill)
}
