package dialects_test

import (
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// The driver looks into the socket of a connection that was idle. That does not show that a load balancer
// or a NAT has forgotten it.
func TestIdleConnectionsThatWereForgottenFailNoLock(t *testing.T) {
	t.Parallel()
	server := mariadb.fresh(t)
	config, err := mysql.ParseDSN(server.dsn)
	if err != nil {
		t.Fatal(err)
	}
	silent.Forgets(t, config.Addr, silent.Untested, func(t *testing.T, addr string) backends.Store {
		db := mariadb.dial(t, strings.ReplaceAll(server.dsn, config.Addr, addr))
		several(t, db.DB)
		return db.store()
	})
}

// several makes a pool open five connections.
func several(t *testing.T, db *sql.DB) {
	t.Helper()
	for range 5 {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
}

// The driver looks into the socket of a connection that was idle, and finds that the server has closed it.
// With TLS, it looks below TLS.
func TestIdleConnectionsThatTheServerHasClosedFailNoLock(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	dsn := mariadbtest.Start(t, "wait-timeout=1", "ssl-cert="+cert, "ssl-key="+key).DSN()
	watch := mariadb.dial(t, dsn+"?wait_timeout=600").DB
	if err := sqlstore.InstallMySQL(trial.Patient(t), watch); err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string]string{"plain": "?tls=false", "TLS": "?tls=skip-verify"} {
		t.Run(name, func(t *testing.T) {
			user := strings.ToLower(name)
			for _, statement := range []string{"CREATE USER " + user, "GRANT ALL ON *.* TO " + user} {
				if _, err := watch.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			t.Parallel()
			db := mariadb.dial(t, strings.Replace(dsn, "root", user, 1)+option)
			several(t, db.DB)
			locks := locker.New(single.New(db.store()), locker.WithTTL(10*time.Minute), locker.WithoutRenewal())
			rounds := 3
			if full.Size() {
				rounds = 20
			}
			for range rounds {
				awaitNone(t, watch, user)
				for range 5 {
					l, err := locks.TryLock(t.Context(), name)
					if err != nil {
						t.Errorf("TryLock = %v", err)
						break
					}
					if err := l.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock = %v", err)
					}
				}
			}
		})
	}
}

// awaitNone waits until the server has ended all sessions of a user.
func awaitNone(t *testing.T, watch *sql.DB, user string) {
	t.Helper()
	eventually(t, "the server has ended the sessions of "+user, func() bool {
		var left int
		row := watch.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE user = ?", user)
		if err := row.Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// certificate makes files of a certificate and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	pki := httptest.NewTLSServer(nil)
	defer pki.Close()
	of := pki.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(of.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: of.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
