package pgx_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// pgx tests connections that were idle for a second. A server may end them sooner.
func TestIdleConnectionsThatTheServerHasClosedFailNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "idle_session_timeout=300ms")
	install(t, server.DSN())
	port := strconv.Itoa(server.Port())
	_, secured, _ := strings.Cut(withTLS(t, net.JoinHostPort("127.0.0.1", port)), ":")
	for way, dsn := range map[string]string{
		"plain": server.DSN(),
		"TLS":   strings.ReplaceAll(server.DSN(), "port="+port, "port="+secured) + " sslmode=require",
	} {
		for name, open := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				locks := locker.New(single.New(open(t, dsn)), locker.WithTTL(10*time.Minute), locker.WithoutExtension())
				for _, pause := range []time.Duration{700 * time.Millisecond, 1300 * time.Millisecond, 700 * time.Millisecond} {
					time.Sleep(pause)
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
			})
		}
	}
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
	client := tls.Server(plain, config)
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}
