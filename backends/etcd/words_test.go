package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/silent"
)

// TestWordsOfErrors: each error has the address, what became of the call and, where there is one, the next
// step. It never has the password.
func TestWordsOfErrors(t *testing.T) {
	t.Parallel()
	const password, nobody = "sesame", "127.0.0.1:1"
	member := etcdtest.Start(t, 1, etcdtest.Fast).Members[0]
	admin := dial(t, []string{member.URL()})
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", password); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.UserAdd(t.Context(), "stranger", password); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	up := member.Addr()
	var err error
	eventually(t, "a wrong password is answered", func() bool {
		_, _, err = etcd.Open(clientv3.Config{Endpoints: []string{member.URL()}, Username: "root", Password: "wrong"})
		return !errors.Is(err, context.DeadlineExceeded) // a busy machine hashes it for longer
	})
	if err == nil || !strings.Contains(err.Error(), up) || !strings.Contains(err.Error(), "authentication failed") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: Open = %v", err)
	}
	for name, c := range map[string]struct {
		user, addr string
		silent     bool
		closed     bool
		limit      time.Duration // of the ctx; negative: it has ended before
		permanent  bool
		is         error
		next       string
	}{
		"nobody listens":    {addr: nobody, limit: time.Second, is: context.DeadlineExceeded},
		"a silent server":   {user: "root", addr: up, silent: true, limit: time.Second, is: context.DeadlineExceeded},
		"a missing right":   {user: "stranger", addr: up, permanent: true, next: "give the user of the client a role"},
		"the ctx has ended": {user: "root", addr: up, limit: -1, is: context.Canceled},
		"closed":            {user: "root", addr: up, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := c.addr
			var proxy *silent.Proxy
			if c.silent {
				proxy = silent.Before(t, to)
				to = proxy.Addr()
			}
			config := clientv3.Config{Endpoints: []string{"http://nobody:" + password + "@" + to}, Username: c.user, Password: password, DialTimeout: patience}
			if c.user == "" {
				config.Password = ""
			}
			store, client, err := etcd.Open(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			if c.closed {
				_ = client.Close()
			}
			if c.silent {
				proxy.Mute()
			}
			for call, fn := range map[string]func(context.Context) error{
				"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
				"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
				"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
				"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.limit)
				}
				defer cancel()
				if c.limit < 0 {
					cancel()
				}
				err := fn(ctx)
				outcome := "nothing was done"
				if !backends.Unsent(err) {
					outcome = "the outcome is unknown"
				}
				if c.permanent {
					outcome = ""
				}
				switch text := fmt.Sprint(err); {
				case err == nil:
					t.Errorf("%s: it has worked", call)
				case !strings.Contains(text, to), !strings.Contains(text, c.next), c.is != nil && !errors.Is(err, c.is):
					t.Errorf("%s: %v; want the address %s, %q and an error that is %v", call, err, to, c.next, c.is)
				case backends.Permanent(err) != c.permanent, !strings.Contains(text, outcome):
					t.Errorf("%s: %v; want that it is permanent: %v, and %q", call, err, c.permanent, outcome)
				case c.limit < 0 && !backends.Unsent(err):
					t.Errorf("%s: %v; want that nothing was done", call, err)
				case strings.Contains(text, password):
					t.Errorf("%s: %v has the password", call, err)
				}
			}
		})
	}
}
