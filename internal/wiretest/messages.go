package wiretest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/redistest"
)

// Connect opens a store through the Open of an adapter, without quarantine and with what is given here. Calls fail once after
// timeout, if it is not zero.
type Connect func(t *testing.T, addr string, encrypt *tls.Config, timeout time.Duration) (store *redis.Store, closes func())

// Messages reads what errors say, to the letter.
func Messages(t *testing.T, connect Connect) {
	server := redistest.Start(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close() // nobody listens there now
	guarded := redistest.Start(t, redistest.WithPassword("secret"))
	encrypted := listen(t)
	hung := redistest.Start(t)

	const port = `127\.0\.0\.1:\d+`
	for _, c := range []struct {
		name    string
		addr    string
		encrypt *tls.Config
		timeout time.Duration
		prepare func(store *redis.Store, closes func())
		want    string // ADDR is the address
		kind    string
		class   class // empty if it depends on how far the client library has got
	}{
		{name: "nobody listens", addr: free.Addr().String(), kind: "connection_refused", class: notDone,
			want: `dial tcp ADDR: connect: connection refused; nothing was sent`},
		{name: "no password", addr: guarded.Addr(), kind: "redis_noauth", class: permanent,
			want: `server ADDR: NOAUTH .*; give the client a password, and a user name if it needs one`},
		{name: "TLS to a server without", addr: server.Addr(), encrypt: &tls.Config{InsecureSkipVerify: true}, kind: "timeout", //nolint:gosec // it gets no further
			want: `server ADDR: .* before any answer; the server may not speak TLS on this port; (nothing was sent|the outcome is unknown)`},
		{name: "no TLS to a server with it", addr: encrypted, kind: "eof", class: unknown,
			want: `server ADDR: EOF before any answer; the server may speak only TLS on this port; the outcome is unknown`},
		{name: "silence", addr: hung.Addr(), timeout: 200 * time.Millisecond, kind: "timeout", class: unknown,
			prepare: func(store *redis.Store, _ func()) {
				store.SetNX(t.Context(), "before", "token", short)
				hung.Pause()
			},
			want: `(server ADDR: |read tcp ` + port + `->ADDR: ).*timeout; the outcome is unknown`},
		{name: "closed", addr: server.Addr(), kind: "closed", class: notDone,
			prepare: func(store *redis.Store, closes func()) {
				closes()
				store.SetNX(t.Context(), "after", "token", short) // the first one after it may be taken for one before
			},
			want: `server ADDR: .*clos.*; nothing was sent`},
		{name: "another type", addr: server.Addr(), kind: "redis_wrongtype", class: permanent,
			prepare: func(*redis.Store, func()) { server.Do("RPUSH", "a", "element") },
			want: `server ADDR: WRONGTYPE Operation against a key holding the wrong kind of value; the key holds something else than this kind of lock: ` +
				`use another key, or a prefix of its own \(see WithPrefix\)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, closes := connect(t, c.addr, c.encrypt, c.timeout)
			if c.prepare != nil {
				c.prepare(store, closes)
			}
			_, err := store.SetNX(context.Background(), "a", "token", short)
			if err == nil {
				t.Fatal("no error")
			}
			typed := interface{ ErrorType() string }(nil)
			if !errors.As(err, &typed) {
				t.Fatalf("%v has no type", err)
			}
			want := regexp.MustCompile("^" + strings.ReplaceAll(c.want, "ADDR", regexp.QuoteMeta(c.addr)) + "$")
			if !want.MatchString(err.Error()) || typed.ErrorType() != c.kind {
				t.Errorf("%s, %q\nwant %s, %s", err, typed.ErrorType(), want, c.kind)
			}
			if c.class != "" && classOf(err) != c.class {
				t.Errorf("%v is %s; want %s", err, classOf(err), c.class)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%v matches the end of a ctx that has none", err)
			}
		})
	}
}

// listen speaks TLS to everybody, and nothing else.
func listen(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 4096)
				_, _ = c.Read(buf) // the handshake, which fails
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}
