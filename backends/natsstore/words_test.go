package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
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
	for name, c := range map[string]struct {
		user, addr string
		closed     bool
		silent     bool
		limit      time.Duration // of the ctx; negative: it has ended before
		unsent     bool
		permanent  bool
		is         error
		next       string
	}{
		"nobody listens":             {user: "app", addr: nobody, unsent: true, next: "the connection is being made again"},
		"a wrong password":           {user: "intruder", addr: addr, unsent: true, next: "the connection is being made again"},
		"a missing right":            {user: "stranger", addr: addr, limit: 2 * time.Second, permanent: true, next: "Store.Permissions"},
		"a silent server":            {user: "app", addr: addr, silent: true, limit: time.Second, is: context.DeadlineExceeded},
		"the ctx has ended":          {user: "app", addr: addr, limit: -1, unsent: true, is: context.Canceled},
		"a name that nobody knows":   {user: "app", addr: "no..such:4222", unsent: true, next: "the connection is being made again"},
		"a server that is full":      {user: "app", addr: full, unsent: true, next: "the connection is being made again"},
		"no stream":                  {user: "app", addr: bare, permanent: true, next: "Store.Install"},
		"a server without JetStream": {user: "app", addr: off, unsent: true, next: "JetStream is off"},
		"closed":                     {user: "app", addr: addr, closed: true, permanent: true, next: "MaxReconnects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := c.addr
			connect := func() *nats.Conn {
				return dial(t, url(c.user, to), nats.RetryOnFailedConnect(true), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
			}
			conn := connect()
			store := natsstore.New(conn)
			if name == "a wrong password" || c.addr == full {
				eventually(t, "the server has refused the connection", func() bool { return conn.LastError() != nil })
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
				ctx, cancel := context.WithCancel(t.Context())
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.limit)
				}
				defer cancel()
				if c.limit < 0 {
					cancel()
				}
				if c.silent { // each call has a proxy of its own, as other connections send PINGs
					proxy := silent.Before(t, c.addr)
					to = proxy.Addr()
					conn = connect()
					store = natsstore.New(conn)
					eventually(t, "the connection is there", conn.IsConnected)
					proxy.Swallow(false)
				}
				err := fn(ctx)
				unsent := c.unsent || c.silent && call != "SetNX" // what only reads has done nothing
				isRefused := c.permanent
				if c.addr == bare && call == "SetNX" { // nobody answers what is published
					unsent, isRefused = true, false
				}
				switch text := fmt.Sprint(err); {
				case err == nil:
					t.Errorf("%s: it has worked", call)
				case !strings.Contains(text, to), !strings.Contains(text, c.next), c.is != nil && !errors.Is(err, c.is):
					t.Errorf("%s: %v; want the address %s, %q and an error that is %v", call, err, to, c.next, c.is)
				case c.addr == full && !strings.Contains(text, "maximum connections exceeded") && !strings.Contains(text, "the log of the server"):
					t.Errorf("%s: %v; want why the server ends the connection, or where to look", call, err)
				case isPermanent(err) != isRefused, isUnsent(err) != unsent:
					t.Errorf("%s: %v: permanent %v and not sent %v; want %v and %v", call, err, isPermanent(err), isUnsent(err), isRefused, unsent)
				case strings.Contains(text, password):
					t.Errorf("%s: %v has the password", call, err)
				}
			}
		})
	}
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
