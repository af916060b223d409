package goredis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	client "github.com/redis/go-redis/v9"
)

// TLS.

func TestTLSCarriesLocks(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	s := guard(t, redistest.WithArgs("--tls-ca-cert-file", pki.ca, "--tls-cert-file", pki.cert, "--tls-key-file", pki.key,
		"--tls-auth-clients", "no"))
	addr := s.listenTLS()
	s.grant("single", users(t)["single"]...)
	connect := func(set func(o *client.Options)) (*locker.Client, <-chan struct{}) {
		o := s.as("single")
		o.Addr, o.TLSConfig = addr, &tls.Config{RootCAs: pki.roots, MinVersion: tls.VersionTLS12}
		if set != nil {
			set(o)
		}
		return locksOf(dial(t, o))
	}

	mine, _ := connect(nil)
	theirs, begun := connect(nil)
	l := mustLock(t, mine, "a")
	w := start(t, theirs, "a", locker.WithBackoff(hourly))
	await(t, "the wait", begun)
	if err := l.Extend(t.Context(), long+time.Minute); err != nil {
		t.Error(err)
	}
	mustUnlock(t, l)
	if err := <-w.done; err != nil {
		t.Errorf("the Lock that waited = %v", err)
	}

	stranger, _ := connect(func(o *client.Options) { o.TLSConfig.RootCAs = x509.NewCertPool() })
	_, err := stranger.Lock(t.Context(), "b")
	if untrusted := (*tls.CertificateVerificationError)(nil); !errors.As(err, &untrusted) {
		t.Errorf("Lock on a server that nobody vouches for = %v", err)
	}
	misnamed, _ := connect(func(o *client.Options) { o.TLSConfig.ServerName = "elsewhere.example" })
	_, err = misnamed.Lock(t.Context(), "b")
	if untrusted := (*tls.CertificateVerificationError)(nil); !errors.As(err, &untrusted) {
		t.Errorf("Lock on a server with another name = %v", err)
	}

	s.do("CONFIG", "SET", "tls-auth-clients", "yes")
	anonymous, _ := connect(nil)
	if _, err := anonymous.TryLock(t.Context(), "b"); err == nil || errors.Is(err, locker.ErrHeld) {
		t.Errorf("TryLock without a certificate of ours = %v", err)
	}
	known, _ := connect(func(o *client.Options) { o.TLSConfig.Certificates = []tls.Certificate{pki.pair} })
	mustUnlock(t, mustLock(t, known, "c"))
}

// listenTLS opens the port for TLS, on a number that is free, below the ephemeral ones.
func (s guarded) listenTLS() string {
	s.t.Helper()
	if settings := s.do("CONFIG", "GET", "tls-port").([]any); len(settings) == 0 {
		redistest.Missing(s.t, "this redis-server is built without TLS")
	}
	for range 50 {
		port := strconv.Itoa(20000 + mrand.IntN(12000))
		if _, err := s.Do("CONFIG", "SET", "tls-port", port); err == nil {
			return net.JoinHostPort("127.0.0.1", port)
		}
	}
	_, err := s.Do("CONFIG", "SET", "tls-port", "21379")
	s.t.Fatalf("no port for TLS: %v", err)
	return ""
}

// A pki is an authority that vouches for 127.0.0.1.
type pki struct {
	ca, cert, key string // files
	roots         *x509.CertPool
	pair          tls.Certificate
}

func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, der []byte) (string, []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		file := filepath.Join(dir, name)
		must(os.WriteFile(file, text, 0o600))
		return file, text
	}
	sign := func(template, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) []byte {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
		must(err)
		return der
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	p := pki{roots: x509.NewCertPool()}
	var caPEM, certPEM, keyPEM []byte
	p.ca, caPEM = write("ca.pem", "CERTIFICATE", sign(ca, ca, &caKey.PublicKey, caKey))
	p.cert, certPEM = write("cert.pem", "CERTIFICATE", sign(leaf, ca, &key.PublicKey, caKey))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	p.key, keyPEM = write("key.pem", "PRIVATE KEY", der)
	p.roots.AppendCertsFromPEM(caPEM)
	p.pair, err = tls.X509KeyPair(certPEM, keyPEM)
	must(err)
	return p
}
