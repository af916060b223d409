package etcd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// TestWordsOfErrors: each error has the address, what became of the call and, where there is one, the next
// step. It never has the password.
func TestWordsOfErrors(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	member := etcdtest.Start(t, 1, etcdtest.Fast).Members[0]
	withUsers(t, dial(t, []string{member.URL()}))
	up := member.Addr()
	var err error
	eventually(t, "a wrong password is answered", func() bool {
		_, _, err = etcd.Open(clientv3.Config{Endpoints: []string{member.URL()}, Username: "root", Password: "wrong"})
		return !errors.Is(err, context.DeadlineExceeded) // a busy machine hashes it for longer
	})
	if err == nil || !strings.Contains(err.Error(), up) || !strings.Contains(err.Error(), "authentication failed") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: Open = %v", err)
	}
	encrypted, trusting := silent.WithTLS(t, up, "h2")
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	strict := httptest.NewUnstartedServer(nil)
	strict.EnableHTTP2, strict.TLS = true, &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12} // in 1.3 the client may write before it reads why
	strict.Config.ErrorLog = log.New(io.Discard, "", 0)
	strict.StartTLS()
	t.Cleanup(strict.Close)
	for name, c := range map[string]struct {
		user, addr string
		tls        *tls.Config
		silent     bool
		stops      bool // when it has got a request
		closed     bool
		limited    bool // its ctx ends
		ended      bool // and has done so before
		permanent  bool
		unsent     bool // no request had a connection
		is         error
		reason     string // that the server or the system has given
		next       string
	}{
		"nobody listens":           {addr: nobody, limited: true, unsent: true, is: context.DeadlineExceeded, reason: "connection refused"},
		"a name that nobody knows": {addr: "no..such:2379", limited: true, unsent: true, is: context.DeadlineExceeded, reason: "no such host"},
		"no port":                  {addr: "127.0.0.1", limited: true, unsent: true, is: context.DeadlineExceeded, reason: "missing port", next: "as host:port"},
		"a server with TLS":        {addr: encrypted, limited: true, unsent: true, is: context.DeadlineExceeded, reason: "EOF|reset", next: "use https:// in Endpoints"},
		"a server without TLS":     {addr: up, tls: trusting, limited: true, unsent: true, is: context.DeadlineExceeded, reason: "EOF", next: "use http:// in Endpoints"},
		"a server that is not etcd": {addr: web.Listener.Addr().String(), tls: trusting, limited: true, unsent: true, is: context.DeadlineExceeded,
			reason: "first record does not look like a TLS handshake", next: "use http:// in Endpoints"},
		"a certificate that is not trusted": {addr: encrypted, tls: &tls.Config{MinVersion: tls.VersionTLS12}, limited: true, unsent: true, is: context.DeadlineExceeded,
			reason: "certificate signed by unknown authority", next: "RootCAs"},
		"a client without a certificate": {addr: strict.Listener.Addr().String(), tls: trusting, limited: true, unsent: true, is: context.DeadlineExceeded,
			reason: "remote error: tls: handshake failure", next: "Certificates of the client's tls.Config"},
		"a server that stops in a call": {user: "root", addr: up, stops: true, limited: true, reason: "EOF|connection refused|connection reset"},
		"a silent server":               {user: "root", addr: up, silent: true, limited: true, is: context.DeadlineExceeded},
		"a missing right":               {user: "stranger", addr: up, permanent: true, reason: "permission denied", next: "give the user of the client a role"},
		"the ctx has ended":             {user: "root", addr: up, ended: true, is: context.Canceled},
		"closed":                        {user: "root", addr: up, closed: true, permanent: true, reason: "the client is closed", next: "make a new client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial.WhileBusy(t, time.Second, func(t testing.TB, limit time.Duration) {
				to, scheme := c.addr, "http://"
				if c.tls != nil {
					scheme = "https://"
				}
				var store *etcd.Store
				connect := func() *clientv3.Client {
					config := clientv3.Config{Endpoints: []string{scheme + "nobody:" + password + "@" + to}, Username: c.user, Password: password, TLS: c.tls, DialTimeout: patience}
					if c.user == "" {
						config.Password = ""
					}
					var client *clientv3.Client
					var err error
					if store, client, err = etcd.Open(config); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = client.Close() })
					return client
				}
				if client := connect(); c.closed {
					_ = client.Close()
				}
				for call, fn := range map[string]func(context.Context) error{
					"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
					"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
					"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
					"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
				} {
					ctx, cancel := context.WithCancel(trial.Patient(t))
					if c.limited {
						ctx, cancel = context.WithTimeout(t.Context(), limit)
					}
					defer cancel()
					if c.ended {
						cancel()
					}
					if c.silent || c.stops {
						proxy := silent.Before(t, c.addr)
						to = proxy.Addr()
						connect()
						asked := proxy.Swallow(false) // after the login: there is a connection
						if c.stops {
							go func() { <-asked; proxy.Stop() }()
						}
					}
					err := fn(ctx)
					outcome, unsent := "nothing was done", c.ended || c.unsent || call != "DeleteIf" // the others read first
					switch {
					case c.permanent:
						outcome, unsent = "", false
					case !unsent:
						outcome = "the outcome is unknown"
					}
					switch text := fmt.Sprint(err); {
					case err == nil:
						t.Errorf("%s: it has worked", call)
					case !strings.Contains(text, to), !strings.Contains(text, c.next), c.is != nil && !errors.Is(err, c.is):
						t.Errorf("%s: %v; want the address %s, %q and an error that is %v", call, err, to, c.next, c.is)
					case !regexp.MustCompile(c.reason).MatchString(text):
						t.Errorf("%s: %v; want the reason %s", call, err, c.reason)
					case backends.Permanent(err) != c.permanent, backends.Unsent(err) != unsent, !strings.Contains(text, outcome):
						t.Errorf("%s: %v; want that it is permanent: %v, not done: %v, and %q", call, err, c.permanent, unsent, outcome)
					case strings.Contains(text, password):
						t.Errorf("%s: %v has the password", call, err)
					}
				}
			})
		})
	}
}
