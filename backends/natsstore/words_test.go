package natsstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestWordsOfErrors: each error has the address, what became of the call and, where there is one, the next
// step. It never has the password.
func TestWordsOfErrors(t *testing.T) {
	const password = "sesame"
	up := run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "app", Password: password}, {Username: "stranger", Password: password, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"none"}},
		}}}
	})
	url := func(user, addr string) string { return "nats://" + user + ":" + password + "@" + addr }
	addr := up.Addr().String()
	if err := natsstore.New(dial(t, url("app", addr))).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	const nobody = "127.0.0.1:1"
	users := func(o *server.Options) { o.Users = []*server.User{{Username: "app", Password: password}} }
	bare := run(t, users).Addr().String()
	off := run(t, users, func(o *server.Options) { o.JetStream = false }).Addr().String()
	full := run(t, users, func(o *server.Options) { o.MaxConn = 1 }).Addr().String()
	dial(t, url("app", full)) // the one connection
	config, trusting := silent.Certificates(t)
	encrypted := run(t, users, withTLS(config)).Addr().String()
	strict := config.Clone()
	strict.ClientAuth, strict.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 // in 1.3 the client may write before it reads why
	choosy := run(t, users, withTLS(strict)).Addr().String()
	const again = "the connection is being made again"
	for name, c := range map[string]struct {
		user, addr string
		opts       []nats.Option
		until      func(*nats.Conn) bool
		closed     bool
		silent     bool
		lost       bool          // the connection, when the server has got the request
		stops      bool          // the server, then
		limit      time.Duration // of the ctx; negative: it has ended before
		unsent     bool
		nobody     bool // takes what is published, so that SetNX is not done
		permanent  bool
		is         error
		reason     string // that the server or the system has given, if the client library keeps it
		next       string
	}{
		"nobody listens":             {user: "app", addr: nobody, unsent: true, next: again + "; nats.ReconnectErrHandler tells why"},
		"a name that nobody knows":   {user: "app", addr: "no..such:4222", unsent: true, next: again + "; nats.ReconnectErrHandler tells why"},
		"a wrong password":           {user: "intruder", addr: addr, until: (*nats.Conn).IsClosed, permanent: true, reason: "(?i)authorization violation", next: "make a new connection"},
		"the same, again and again":  {user: "intruder", addr: addr, opts: []nats.Option{nats.IgnoreAuthErrorAbort()}, until: isTold, unsent: true, reason: "(?i)authorization violation|the log of the server", next: again},
		"a server that is full":      {user: "app", addr: full, until: isTold, unsent: true, reason: "maximum connections exceeded|the log of the server", next: again},
		"a server without TLS":       {user: "app", addr: addr, opts: []nats.Option{nats.Secure(trusting)}, until: isTold, unsent: true, reason: "secure connection not available", next: "connect without nats.Secure"},
		"a server with TLS":          {user: "app", addr: encrypted, until: isTold, unsent: true, reason: "signed by unknown authority", next: "RootCAs"},
		"another certificate":        {user: "app", addr: encrypted, opts: []nats.Option{nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12})}, until: isTold, unsent: true, reason: "signed by unknown authority", next: "RootCAs"},
		"no certificate":             {user: "app", addr: choosy, opts: []nats.Option{nats.Secure(trusting)}, until: isTold, unsent: true, reason: "remote error: tls: handshake failure", next: "Certificates of the client's tls.Config"},
		"a missing right":            {user: "stranger", addr: addr, limit: 2 * time.Second, permanent: true, reason: "Permissions Violation", next: "Store.Permissions"},
		"a silent server":            {user: "app", addr: addr, silent: true, is: context.Canceled},
		"a connection that is lost":  {user: "app", addr: addr, lost: true, is: context.Canceled, reason: "the connection was lost"},
		"a server that stops":        {user: "app", addr: addr, stops: true, is: context.Canceled, reason: "the connection was lost"},
		"the ctx has ended":          {user: "app", addr: addr, limit: -1, unsent: true, is: context.Canceled},
		"no stream":                  {user: "app", addr: bare, nobody: true, permanent: true, reason: "stream not found|nobody takes lockstep.lock.a", next: "Store.Install"},
		"a server without JetStream": {user: "app", addr: off, unsent: true, reason: "nobody takes", next: "JetStream is off"},
		"an account without JetStream": {user: "app", addr: says(t, 503, 10039, "jetstream not enabled for account"), permanent: true,
			reason: "jetstream not enabled for account", next: "enable JetStream for the account of this user"},
		"no leader":        {user: "app", addr: says(t, 503, 10008, "JetStream system temporarily unavailable"), unsent: true, reason: "temporarily unavailable", next: "wait until JetStream has a leader"},
		"no resources":     {user: "app", addr: says(t, 503, 10023, "insufficient resources"), unsent: true, reason: "insufficient resources", next: "more storage"},
		"no storage":       {user: "app", addr: says(t, 500, 10047, "insufficient storage resources available"), unsent: true, reason: "insufficient storage", next: "more storage"},
		"a full stream":    {user: "app", addr: says(t, 503, 10077, "maximum bytes exceeded"), unsent: true, reason: "maximum bytes exceeded", next: "raise its limits"},
		"another settings": {user: "app", addr: says(t, 400, 10166, "per-message TTL is disabled"), permanent: true, reason: "TTL is disabled", next: "call Store.Install once"},
		"an error unknown": {user: "app", addr: says(t, 400, 10999, "something new"), permanent: true, reason: "something new", next: "run Store.Check"},
		"closed":           {user: "app", addr: addr, closed: true, permanent: true, reason: "connection closed", next: "MaxReconnects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := c.addr
			connect := func() *nats.Conn {
				return dial(t, url(c.user, to), append(c.opts, nats.RetryOnFailedConnect(true), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))...)
			}
			conn := connect()
			store := natsstore.New(conn)
			if c.until != nil {
				eventually(t, "the server has refused the connection", func() bool { return c.until(conn) })
			}
			if c.closed {
				conn.Close()
			}
			for call, fn := range map[string]func(context.Context) error{
				"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
				"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
				"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
				"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
				"Identify": func(ctx context.Context) error { _, err := store.Identify(ctx); return err },
			} {
				ctx, cancel := context.WithCancel(trial.Patient(t))
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.limit)
				}
				defer cancel()
				if c.limit < 0 {
					cancel()
				}
				unanswered := c.silent || c.lost || c.stops
				if unanswered { // each call has a proxy of its own, as other connections send PINGs
					proxy := silent.Before(t, c.addr)
					to = proxy.Addr()
					end := func() {}
					switch {
					case c.lost:
						relay := redistest.NewRelay(t, to)
						to, end = relay.Addr(), relay.CutAll
					case c.stops:
						end = proxy.Stop
					}
					conn = connect()
					store = natsstore.New(conn)
					eventually(t, "an answer: the next request is sent alone", func() bool { _, err := store.Inspect(t.Context(), "a"); return err == nil })
					asked := proxy.Swallow(false)
					made := conn.Stats().Reconnects
					go func() {
						<-asked
						end()
						for !c.silent && conn.IsConnected() && conn.Stats().Reconnects == made {
							time.Sleep(time.Millisecond)
						}
						cancel()
					}()
				}
				err := fn(ctx)
				unsent := c.unsent || unanswered && call != "SetNX" // what only reads has done nothing
				isRefused := c.permanent
				if c.nobody && call == "SetNX" {
					unsent, isRefused = true, false
				}
				outcome := "the outcome is unknown"
				switch {
				case isRefused:
					outcome = ""
				case unsent:
					outcome = "nothing was done"
				}
				switch text := fmt.Sprint(err); {
				case err == nil:
					t.Errorf("%s: it has worked", call)
				case !strings.Contains(text, to), !strings.Contains(text, c.next), c.is != nil && !errors.Is(err, c.is):
					t.Errorf("%s: %v; want the address %s, %q and an error that is %v", call, err, to, c.next, c.is)
				case !regexp.MustCompile(c.reason).MatchString(text):
					t.Errorf("%s: %v; want the reason %s", call, err, c.reason)
				case isPermanent(err) != isRefused, isUnsent(err) != unsent, !strings.Contains(text, outcome):
					t.Errorf("%s: %v: permanent %v and not sent %v; want %v and %v, and %q", call, err, isPermanent(err), isUnsent(err), isRefused, unsent, outcome)
				case strings.Contains(text, password):
					t.Errorf("%s: %v has the password", call, err)
				}
			}
		})
	}
}

// isTold tells that a connection that is being made again has been refused, and will keep why.
func isTold(conn *nats.Conn) bool { return conn.Stats().Reconnects > 0 && conn.LastError() != nil }

func withTLS(config *tls.Config) func(*server.Options) {
	return func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, config, patience.Seconds() }
}

// says is the address of a server whose JetStream answers all requests with an error.
func says(t *testing.T, status, code int, text string) string {
	t.Helper()
	s := run(t, func(o *server.Options) { o.JetStream = false })
	conn := dial(t, s.ClientURL())
	for _, subject := range []string{"$JS.API.STREAM.>", "lockstep.lock.>"} {
		if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
			_ = m.Respond(fmt.Appendf(nil, `{"error":{"code":%d,"err_code":%d,"description":%q}}`, status, code, text))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return s.Addr().String()
}

// The end of a ctx or a TTL makes the Client leave an attempt, whose error it does not have.
func TestTheAddressOfAServerThatFallsSilent(t *testing.T) {
	t.Parallel()
	mute := silent.Before(t, run(t).Addr().String())
	conn := dial(t, "nats://"+mute.Addr())
	locks := locker.New(single.New(natsstore.New(conn)))
	mute.Swallow(false)
	_, err := locks.TryLock(t.Context(), "a", locker.WithTTL(time.Second))
	if err == nil || !strings.Contains(err.Error(), mute.Addr()) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("%v; want the address %s, and that the outcome is unknown", err, mute.Addr())
	}
	if _, _, err := net.SplitHostPort(natsstore.New(conn).Endpoint()); err != nil {
		t.Errorf("Endpoint = %q", natsstore.New(conn).Endpoint())
	}
}
