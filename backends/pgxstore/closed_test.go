package pgxstore_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// pgx tests connections that were idle for a second. A server may end them sooner. On a busy machine it may end
// one before its first call. In full size they end 20 times.
func TestIdleConnectionsThatTheServerHasClosedFailNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	watch := install(t, server.DSN())
	port := strconv.Itoa(server.Port())
	_, secured, _ := strings.Cut(withTLS(t, net.JoinHostPort("127.0.0.1", port)), ":")
	for way, dsn := range map[string]string{
		"plain": server.DSN(),
		"TLS":   strings.ReplaceAll(server.DSN(), "port="+port, "port="+secured) + " sslmode=require",
	} {
		for name, open := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				program := strings.ReplaceAll(name+"-"+way, " ", "-")
				trial.WhileBusy(t, 300*time.Millisecond, func(take testing.TB, limit time.Duration) {
					limit = min(limit, 900*time.Millisecond)
					store := open(take, fmt.Sprintf("%s application_name=%s options='-c idle_session_timeout=%dms'", dsn, program, limit.Milliseconds()))
					outliveTheirSessions(take, store, func() { awaitNone(take, watch, program) })
				})
			})
		}
	}
}

func outliveTheirSessions(t testing.TB, store backends.Store, ended func()) {
	locks := locker.New(single.New(store), locker.WithTTL(10*time.Minute), locker.WithoutRenewal())
	rounds := 3
	if full.Size() {
		rounds = 20
	}
	for i := range rounds {
		pause := time.Duration(i%2) * 1300 * time.Millisecond // every other time longer than the second of pgx
		time.Sleep(pause)
		ended()
		for range 2 {
			l, err := locks.TryLock(t.Context(), t.Name())
			if err != nil {
				t.Errorf("after %v: TryLock = %v", pause, err)
				break
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("after %v: Unlock = %v", pause, err)
			}
		}
	}
}

// awaitNone waits until the server has ended all sessions of a program.
func awaitNone(t testing.TB, watch *pgxpool.Pool, program string) {
	t.Helper()
	eventually(t, "the server has ended the sessions of "+program, func() bool {
		var left int
		err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", program).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// withTLS speaks TLS before a server that does not.
func withTLS(t *testing.T, to string) (addr string) {
	t.Helper()
	pki := httptest.NewTLSServer(nil)
	t.Cleanup(pki.Close)
	config := &tls.Config{Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			plain, err := listener.Accept()
			if err != nil {
				return
			}
			go secure(plain, to, config)
		}
	}()
	return listener.Addr().String()
}

// secure ends TLS as PostgreSQL begins it, until the server closes.
func secure(plain net.Conn, to string, config *tls.Config) {
	defer func() { _ = plain.Close() }()
	if _, err := io.ReadFull(plain, make([]byte, 8)); err != nil {
		return
	}
	if _, err := plain.Write([]byte("S")); err != nil {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	client := tls.Server(plain, config)
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite() // what the server has said last is still to be read
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}
