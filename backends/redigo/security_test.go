package redigo_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// What docs/security.md says of redigo. What each permission is for, package goredis finds out: the commands are the same.

// users are the ACL lines of the page: what follows the name in ACL SETUSER.
func users(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		if words := strings.Fields(line); len(words) > 3 && words[0] == "ACL" && words[1] == "SETUSER" {
			all[words[2]] = words[3:]
		}
	}
	if len(all) == 0 {
		t.Fatal("no ACL lines in the page")
	}
	return all
}

func command(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// denied are the objects in the ACL LOG, but for those that the page calls merely worth adding.
func denied(t *testing.T, server *redistest.Server) (all []string) {
	t.Helper()
	for _, entry := range command(t, server, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		object := fields[slices.Index(fields, any("object"))+1].(string)
		if !slices.Contains([]string{"ping", "unsubscribe", "unwatch"}, object) {
			all = append(all, object)
		}
	}
	return all
}

// as makes a pool of connections of user.
func as(t *testing.T, addr, user string, more ...client.DialOption) *client.Pool {
	return dial(t, addr, append([]client.DialOption{client.DialUsername(user), client.DialPassword("secret")}, more...)...)
}

var app = redisstore.WithPrefix("app:")

func TestACLsOfThePageSuffice(t *testing.T) {
	lines := users(t)
	opts := map[string][]redisstore.Option{
		"single": {app}, "single-quarantine": {app}, "single-any-key": {app}, "fair": {app}, "fenced": {app}, "reentrant": {app},
		"single-polling":    {app, redisstore.WithoutWakes()},
		"single-no-scripts": {app, redisstore.WithoutScripts()},
		"single-replicas":   {app, redisstore.WithReplicas(1, 4*time.Second)},
	}
	for user := range lines {
		if _, tested := opts[user]; !tested && !slices.Contains([]string{"single-cluster", "legacy", "check"}, user) {
			t.Errorf("nothing tests the user %s", user)
		}
	}
	for user, opts := range opts {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			command(t, server, append([]string{"ACL", "SETUSER", user}, lines[user]...)...)
			mine := as(t, server.Addr(), user)
			switch user {
			case "single-replicas":
				host, port, _ := net.SplitHostPort(server.Addr())
				redistest.Start(t, redistest.WithArgs("--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
				eventually(t, "the replica follows", func() bool {
					return strings.Contains(command(t, server, "INFO", "replication").(string), "state=online")
				})
			case "single-quarantine":
				_ = redigo.Quarantine(mine, server.Addr()) // asks, whatever the store makes of it
			}
			keys := []string{"invoice/42"}
			if user == "single-any-key" {
				keys = append(keys, "{a}b", "a}b")
			}
			for _, key := range keys {
				live(t, server, key, locks(user, mine, opts), locks(user, dial(t, server.Addr()), opts), user == "single-polling")
			}
			if got := denied(t, server); len(got) > 0 {
				t.Errorf("refused on the way: %q", got)
			}
		})
	}
}

func locks(user string, pool *client.Pool, opts []redisstore.Option) *locker.Client {
	store := redigo.New(pool, append(opts, redisstore.WithMaxTTL(time.Hour))...)
	l := single.New(store)
	switch user {
	case "fair":
		l = fair.New(store)
	case "fenced":
		l = fenced.New(store)
	case "reentrant":
		l = reentrant.New(store)
	}
	return locker.New(l, locker.WithTTL(10*time.Minute)) // what returns before was told, or woken
}

// live does all that one can do with a lock.
func live(t *testing.T, server *redistest.Server, key string, mine, theirs *locker.Client, polls bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s of %q = %v", what, key, err)
		}
	}
	held, err := theirs.TryLock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.TryLock(ctx, key); !errors.Is(err, locker.ErrHeld) {
		t.Errorf("TryLock of %q, which is held = %v", key, err)
	}
	done := make(chan error, 1)
	go func() {
		var waits []locker.Option
		if !polls {
			waits = append(waits, locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
		}
		l, err := mine.Lock(ctx, key, waits...)
		if err == nil {
			err = errors.Join(l.Extend(ctx, 20*time.Minute), l.Unlock(ctx))
		}
		done <- err
	}()
	if !polls {
		eventually(t, "the wait", func() bool {
			queues := command(t, server, "KEYS", "*?queue").([]any)
			return strings.Contains(channels(t, server), key) || len(queues) > 0 || len(done) > 0
		})
	}
	must("Unlock by another", held.Unlock(ctx))
	must("Lock, Extend and Unlock", <-done)

	lost, err := mine.TryLock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	command(t, server, "DEL", "app:"+key)
	if err := lost.Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of %q, which was lost = %v", key, err)
	}
}

func TestACLOfThePageSufficesForRecipesOfLegacyAndForCheck(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes"))
	for _, user := range []string{"legacy", "check"} {
		command(t, server, append([]string{"ACL", "SETUSER", user}, users(t)[user]...)...)
	}
	ctx, store, errs := t.Context(), redigo.New(as(t, server.Addr(), "legacy"), app), [10]error{}
	_, errs[0] = store.SetNXForever(ctx, "a", "value")
	_, _, errs[1] = store.Get(ctx, "a")
	_, _, errs[2] = store.GetSet(ctx, "a", "value")
	_, _, errs[3] = store.Left(ctx, "a")
	_, errs[4] = store.Expire(ctx, "a", 20*time.Second)
	_, errs[5] = store.TxExpireIf(ctx, "a", "value", 20*time.Second)
	_, errs[6] = store.TxDeleteIf(ctx, "a", "value")
	_, errs[7] = store.Delete(ctx, "a")
	_, errs[8] = store.GetBit(ctx, "a", 0)
	_, errs[9] = store.SetBit(ctx, "a", 0, true)
	if err := errors.Join(errs[:]...); err != nil {
		t.Error(err)
	}
	report, err := redigo.New(as(t, server.Addr(), "check")).Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Problem == redisstore.ProblemPermission {
			t.Error(f)
		}
	}
	if got := denied(t, server); len(got) > 0 {
		t.Errorf("refused on the way: %q", got)
	}
}

func TestACLNeedsOfRedigo(t *testing.T) {
	server := redistest.Start(t)
	full := users(t)["single"]
	lock := func(pool *client.Pool) error {
		l, err := locker.New(single.New(redigo.New(pool, app))).TryLock(t.Context(), "a")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		return err
	}
	for permission, option := range map[string]client.DialOption{
		"+select": client.DialDatabase(1), "+client|setname": client.DialClientName("me"),
	} {
		for _, rules := range [][]string{full, append(slices.Clone(full), permission)} {
			command(t, server, append([]string{"ACL", "SETUSER", "single"}, rules...)...)
			err := lock(as(t, server.Addr(), "single", option))
			reply := (*redisstore.ReplyError)(nil)
			refused := errors.As(err, &reply) && reply.Code() == "NOPERM" && reply.Permanent()
			if permitted := slices.Contains(rules, permission); refused == permitted || permitted && err != nil {
				t.Errorf("%s, permitted: %t: %v", permission, permitted, err)
			}
		}
	}

	command(t, server, append([]string{"ACL", "SETUSER", "single"}, full...)...)
	for name, c := range map[string]struct {
		ours    func(context.Context, client.Conn, time.Time) error
		own     func(client.Conn, time.Time) error
		dialled bool // anew for each command
	}{
		"no test":          {},
		"TestOnBorrow":     {ours: redigo.TestOnBorrow()},
		"a test by itself": {own: func(c client.Conn, _ time.Time) error { _, err := c.Do("PING"); return err }, dialled: true},
	} {
		proxy := redistest.NewProxy(t, server.Addr())
		pool := as(t, proxy.Addr(), "single")
		pool.TestOnBorrow, pool.TestOnBorrowContext = c.own, c.ours
		if err := lock(pool); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := proxy.Count("AUTH"); (n > 1) != c.dialled {
			t.Errorf("%s: %d connections", name, n)
		}
		if c.own == nil {
			if seen := fmt.Sprint(proxy.Seen()); !strings.HasPrefix(seen, "[AUTH SET ") || proxy.Count("HELLO")+proxy.Count("CLIENT") > 0 {
				t.Errorf("%s: sent %v: the page says what redigo sends", name, seen)
			}
		}
	}

	nobody := dial(t, server.Addr(), client.DialUsername("single")).Get() // and no password
	defer nobody.Close()
	if who, err := client.String(nobody.Do("ACL", "WHOAMI")); who != "default" || err != nil {
		t.Errorf("a user without a password is %q, %v", who, err)
	}
}

func TestMissingCredentialsAreToldAtOnceAlsoByQuarantine(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("secret"))
	for code, options := range map[string][]client.DialOption{
		"NOAUTH": nil, "WRONGPASS": {client.DialPassword("wrong")},
	} {
		store, pool := redigo.Open(server.Addr(), options)
		defer pool.Close()
		_, err := locker.New(single.New(store)).Lock(t.Context(), "a")
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != code || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock = %v, want %s", err, code)
		}
	}
}

func TestTLSCarriesLocks(t *testing.T) {
	server := redistest.Start(t)
	pki := httptest.NewTLSServer(nil) // its certificate is for 127.0.0.1, and vouches for itself
	defer pki.Close()
	addr := terminate(t, server.Addr(), pki.TLS.Certificates)
	roots := x509.NewCertPool()
	roots.AddCert(pki.Certificate())
	lock := func(config *tls.Config) error {
		store, pool := redigo.Open(addr, []client.DialOption{client.DialUseTLS(true), client.DialTLSConfig(config)},
			redisstore.WithoutQuarantine())
		defer pool.Close()
		mine, theirs := locker.New(single.New(store)), locker.New(single.New(redigo.New(dial(t, server.Addr()))))
		held, err := theirs.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			l, err := mine.Lock(t.Context(), "a", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
			if err == nil {
				err = l.Unlock(t.Context())
			}
			done <- err
		}()
		eventually(t, "the wait, or an error", func() bool { return channels(t, server) != "" || len(done) > 0 })
		if err := held.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		return <-done
	}
	if err := lock(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("Lock = %v", err)
	}
	for name, config := range map[string]*tls.Config{
		"that nobody vouches for": {RootCAs: x509.NewCertPool()}, "with another name": {RootCAs: roots, ServerName: "elsewhere.test"},
	} {
		err := lock(config)
		if untrusted := (*tls.CertificateVerificationError)(nil); !errors.As(err, &untrusted) {
			t.Errorf("Lock on a server %s = %v", name, err)
		}
	}
}

// terminate listens with TLS and passes on to addr what comes.
func terminate(t *testing.T, addr string, certificates []tls.Certificate) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					_, _ = io.Copy(near, far)
					near.Close()
				}()
				_, _ = io.Copy(far, near)
			}()
		}
	}()
	return l.Addr().String()
}
