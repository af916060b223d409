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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// Server says how to open a store.
type Server struct {
	Addr     string
	Encrypt  *tls.Config
	Timeout  time.Duration // of calls, which are not repeated; 0: no timeout
	Password string
	Database int
}

// Connect opens a store through the Open of an adapter.
type Connect func(t *testing.T, to Server, opts ...redisstore.Option) (store *redisstore.Store, closes func())

// Messages compares the texts of errors. Without quarantine, some client libraries send a command
// on a new connection before the call, and say whether it was answered: then tells is true.
func Messages(t *testing.T, connect Connect, tells bool) {
	server := redistest.Start(t)
	guarded := redistest.Start(t, redistest.WithPassword("secret"))
	certificate := selfSigned(t)
	encrypted := listen(t, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}})
	wary := listen(t, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert})
	hung, silent := redistest.Start(t), redistest.Start(t)
	silent.Pause()
	credulous := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // no secret is sent
	set := func(name, value string) *redistest.Server {
		s := redistest.Start(t)
		if _, err := s.Do("CONFIG", "SET", name, value); err != nil {
			t.Fatal(err)
		}
		return s
	}
	noRoom, noReplicas := set("maxmemory", "1"), set("min-replicas-to-write", "1")
	stranger, replica, slotless := redistest.Start(t), redistest.Start(t), redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
	for s, command := range map[*redistest.Server][]string{
		stranger: {"ACL", "SETUSER", "default", "-set"}, replica: {"REPLICAOF", "127.0.0.1", "1"},
	} {
		if _, err := s.Do(command...); err != nil {
			t.Fatal(err)
		}
	}
	refuses := func(reply string) string {
		p := redistest.NewProxy(t, server.Addr())
		p.Add(redistest.Rule{Fault: redistest.Refuse, Commands: []string{"SET"}, Times: -1, Reply: "-" + reply + "\r\n"})
		return p.Addr()
	}
	cut := redistest.NewProxy(t, server.Addr())
	noQuarantine := redisstore.WithoutQuarantine()

	const port = `127\.0\.0\.1:\d+`
	const anyText = `(server ADDR: |read tcp ` + port + `->ADDR: ).*`
	for _, c := range []struct {
		name    string
		to      Server
		opt     redisstore.Option // nil: quarantine
		prepare func(store *redisstore.Store, closes func())
		want    string // ADDR is the address
		kind    string // or several: it depends on the client library
		class   class  // empty: it depends on the client library
	}{
		{name: "nobody listens", to: Server{Addr: "127.0.0.1:1"}, opt: noQuarantine, kind: "connection_refused", class: notDone,
			want: `dial tcp ADDR: connect: connection refused; nothing was sent`},
		{name: "a name that nobody knows", to: Server{Addr: "no..such:6379"}, opt: noQuarantine, kind: "no_host", class: notDone,
			want: `(server ADDR: )?dial tcp: lookup no..such: no such host; nothing was sent`},
		{name: "no password", to: Server{Addr: guarded.Addr()}, opt: noQuarantine, kind: "redis_noauth", class: permanent,
			want: `server ADDR: NOAUTH .*; give the client a password, and a user name if it needs one`},
		{name: "a wrong password", to: Server{Addr: guarded.Addr(), Password: "other"}, opt: noQuarantine, kind: "redis_wrongpass", class: permanent,
			want: `server ADDR: WRONGPASS invalid username-password pair or user is disabled; ` +
				`check the user name and the password of the client, and that the user is on \(ACL LIST\)`},
		{name: "a wrong database", to: Server{Addr: server.Addr(), Database: 99}, opt: noQuarantine, kind: "redis_err", class: permanent,
			want: `server ADDR: ERR DB index is out of range; nothing was sent: choose a database that the server has \(CONFIG GET databases\)`},
		{name: "an address without a port", to: Server{Addr: "localhost"}, opt: noQuarantine, kind: "address", class: permanent,
			want: `dial tcp: address localhost: missing port in address; give the address as host:port; nothing was sent`},
		{name: "a certificate that is not trusted", to: Server{Addr: encrypted, Encrypt: &tls.Config{}}, opt: noQuarantine, kind: "tls", class: permanent,
			want: `server ADDR: tls: failed to verify certificate: x509: .*; check RootCAs and ServerName of the client's tls.Config; nothing was sent`},
		{name: "no certificate of the client", to: Server{Addr: wary, Encrypt: credulous}, opt: noQuarantine, kind: "tls", class: permanent,
			want: `server ADDR: remote error: tls: certificate required; check Certificates of the client's tls.Config; nothing was sent`},
		{name: "TLS to a server without", to: Server{Addr: server.Addr(), Encrypt: credulous}, opt: noQuarantine, kind: "timeout", class: notDone,
			want: anyText + ` before any answer; the server may not speak TLS on this port; nothing was sent`},
		{name: "no TLS to a server with it", to: Server{Addr: encrypted}, opt: noQuarantine, kind: "eof", class: outcome(tells),
			want: `server ADDR: EOF before any answer; the server may speak only TLS on this port, or be a proxy that does not know the first command(, HELLO)?` + text(outcome(tells))},
		{name: "no TLS to a server with it, quarantine", to: Server{Addr: encrypted}, kind: "eof", class: notDone,
			want: `server ADDR: .*EOF before any answer; the server may speak only TLS on this port, or be a proxy that does not know the first command(, HELLO)?; nothing was sent`},
		{name: "silence from the first", to: Server{Addr: silent.Addr(), Timeout: 200 * time.Millisecond}, opt: noQuarantine, kind: "timeout",
			class: outcome(tells), want: anyText + `timeout` + text(outcome(tells))},
		{name: "silence from the first, quarantine", to: Server{Addr: silent.Addr(), Timeout: 200 * time.Millisecond}, kind: "timeout",
			class: notDone, want: `(INFO, which quarantine needs on a new connection: )?` + anyText + `timeout; nothing was sent`},
		{name: "silence", to: Server{Addr: hung.Addr(), Timeout: 200 * time.Millisecond}, opt: noQuarantine, kind: "timeout", class: unknown,
			prepare: func(store *redisstore.Store, _ func()) {
				store.SetNX(t.Context(), "before", "token", short)
				hung.Pause()
			},
			want: anyText + `timeout; the outcome is unknown`},
		{name: "closed", to: Server{Addr: server.Addr()}, opt: noQuarantine, kind: "closed", class: permanent,
			prepare: func(store *redisstore.Store, closes func()) {
				closes()
				// the first call may still use an old connection
				store.SetNX(t.Context(), "after", "token", short)
			},
			want: `server ADDR: .*clos.*; nothing was sent`},
		{name: "another type", to: Server{Addr: server.Addr()}, opt: noQuarantine, kind: "redis_wrongtype", class: permanent,
			prepare: func(*redisstore.Store, func()) { server.Do("RPUSH", "a", "element") },
			want: `server ADDR: WRONGTYPE Operation against a key holding the wrong kind of value; the key holds something else than this kind of lock: ` +
				`use another key, or a prefix of its own \(see redisstore.WithPrefix\)`},

		{name: "a missing right", to: Server{Addr: stranger.Addr()}, opt: noQuarantine, kind: "redis_noperm", class: permanent,
			want: `server ADDR: NOPERM .*'set' command.*; allow its user that command \(docs/security.md .*\)`},
		{name: "no memory", to: Server{Addr: noRoom.Addr()}, opt: noQuarantine, kind: "redis_oom", class: notDone,
			want: `server ADDR: OOM command not allowed .*; nothing was done: raise maxmemory of the server, or remove keys`},
		{name: "no disk", to: Server{Addr: refuses("MISCONF Errors writing to the AOF file: No space left on device")}, opt: noQuarantine, kind: "redis_misconf", class: notDone,
			want: `server ADDR: MISCONF .*No space left on device; nothing was done: the server can't write its data to disk .*`},
		{name: "no replicas", to: Server{Addr: noReplicas.Addr()}, opt: noQuarantine, kind: "redis_noreplicas", class: notDone,
			want: `server ADDR: NOREPLICAS .*; nothing was done: too few replicas are connected for min-replicas-to-write`},
		{name: "a replica", to: Server{Addr: replica.Addr()}, opt: noQuarantine, kind: "redis_readonly", class: notDone,
			want: `server ADDR: READONLY .*; nothing was done: the server is a replica: give the client the address of the master`},
		{name: "a replica without its master", to: Server{Addr: refuses("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")},
			opt: noQuarantine, kind: "redis_masterdown", class: notDone,
			want: `server ADDR: MASTERDOWN .*; nothing was done: the server is a replica: give the client the address of the master`},
		{name: "a server that reads its data", to: Server{Addr: refuses("LOADING Redis is loading the dataset in memory")}, opt: noQuarantine, kind: "redis_loading", class: notDone,
			want: `server ADDR: LOADING .*; nothing was done: wait until the server has read its data \(INFO persistence\)`},
		{name: "a server that is busy", to: Server{Addr: refuses("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")},
			opt: noQuarantine, kind: "redis_busy", class: notDone,
			want: `server ADDR: BUSY .*; nothing was done: SCRIPT KILL ends the script that keeps the server busy`},
		{name: "a cluster without its slots", to: Server{Addr: slotless.Addr()}, opt: noQuarantine, kind: "redis_clusterdown", class: notDone,
			want: `server ADDR: CLUSTERDOWN .*; nothing was done: look at the cluster \(redis-cli --cluster check\)`},
		{name: "a server of a cluster", to: Server{Addr: refuses("MOVED 3999 127.0.0.1:1")}, opt: noQuarantine, kind: "redis_moved", class: notDone,
			want: `server ADDR: MOVED .*; nothing was done: the key is on another server of a cluster, which needs a client for clusters`},
		{name: "a connection that is lost in a call", to: Server{Addr: cut.Addr(), Timeout: patience}, opt: noQuarantine, kind: "connection_reset eof", class: unknown,
			prepare: func(store *redisstore.Store, _ func()) {
				store.SetNX(t.Context(), "before", "token", short)
				cut.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"SET"}, Times: -1})
			},
			want: anyText + `(connection reset by peer|EOF); the outcome is unknown`},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, closes := connect(t, c.to, c.opt, redisstore.WithMaxTTL(long))
			if c.prepare != nil {
				c.prepare(store, closes)
			}
			want := regexp.MustCompile("^" + strings.ReplaceAll(c.want, "ADDR", regexp.QuoteMeta(c.to.Addr)) + "$")
			_, err := store.SetNX(context.Background(), "a", "token", short)
			// A machine with much other work may not connect within the timeout of the client.
			slow := func() bool {
				op, ok := errors.AsType[*net.OpError](err)
				return typeOf(err) == "timeout" && (c.kind != "timeout" || ok && op.Op == "dial" && !want.MatchString(err.Error()))
			}
			for begun := time.Now(); slow() && time.Since(begun) < patience; {
				_, err = store.SetNX(context.Background(), "a", "token", short)
			}
			if err == nil {
				t.Fatal("no error")
			}
			if !want.MatchString(err.Error()) || !slices.Contains(strings.Fields(c.kind), typeOf(err)) {
				t.Errorf("%s, %q\nwant %s, %s", err, typeOf(err), want, c.kind)
			}
			if classOf(err) != c.class {
				t.Errorf("%v is %s; want %s", err, classOf(err), c.class)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%v matches the end of a ctx that has none", err)
			}
		})
	}
}

// typeOf returns what err says of its type; empty: nothing.
func typeOf(err error) string {
	typed := interface{ ErrorType() string }(nil)
	if !errors.As(err, &typed) {
		return ""
	}
	return typed.ErrorType()
}

// outcome returns the class of the first call on a new connection that breaks.
func outcome(tells bool) class {
	if tells {
		return notDone
	}
	return unknown
}

func text(c class) string {
	if c == notDone {
		return "; nothing was sent"
	}
	return "; the outcome is unknown"
}

func selfSigned(t *testing.T) tls.Certificate {
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
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listen speaks only TLS.
func listen(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
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
