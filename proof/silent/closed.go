package silent

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const told = 300 * time.Millisecond // for a client to read that the server has closed

// Closes tests that the first lock succeeds after the server has closed all connections of a store, at once
// or after an idle time. closed has the server close them.
func Closes(t *testing.T, store backends.Store, closed func()) {
	trial.WhileBusy(t, ttl, func(take testing.TB, _ time.Duration) { closes(take, store, closed) }) // as in Forgets
}

func closes(t testing.TB, store backends.Store, closed func()) {
	locks := locker.New(single.New(store), locker.WithoutRenewal())
	rounds := 4
	if full.Size() {
		rounds = manyTimes
	}
	lockOnce(t, locks, t.Name())
	for i := range rounds {
		if i%2 == 1 {
			time.Sleep(Untested)
		}
		closed()
		time.Sleep(told)
		lockOnce(t, locks, t.Name())
	}
}

// Certificates are of a server, and of those who trust it.
func Certificates(t testing.TB) (server, client *tls.Config) {
	pki := httptest.NewTLSServer(nil)
	t.Cleanup(pki.Close)
	roots := x509.NewCertPool()
	roots.AddCert(pki.Certificate())
	return &tls.Config{Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// WithTLS returns the address of a proxy that speaks TLS before a server that does not. It closes as the
// server does.
func WithTLS(t *testing.T, server string, protocols ...string) (addr string, client *tls.Config) {
	config, client := Certificates(t)
	config.NextProtos = protocols
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go between(near, server)
		}
	}()
	return l.Addr().String(), client
}

func between(near net.Conn, server string) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	go func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	_, _ = io.Copy(far, near)
}
