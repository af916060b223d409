package drivertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Users are the ACL lines of docs/redis-users.acl: what follows the name in ACL SETUSER.
func Users(t *testing.T) map[string][]string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := func() string { return filepath.Join(dir, "docs", "redis-users.acl") }
	for _, err := os.Stat(file()); err != nil && filepath.Dir(dir) != dir; _, err = os.Stat(file()) {
		dir = filepath.Dir(dir)
	}
	lines, err := os.ReadFile(file())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(lines)) {
		if words := strings.Fields(line); len(words) > 3 && words[0] == "ACL" && words[1] == "SETUSER" {
			all[words[2]] = words[3:]
		}
	}
	if len(all) == 0 {
		t.Fatalf("no ACL lines in %s", file())
	}
	return all
}

var app = redisstore.WithPrefix("app:")

// usersSuffice shows that the users of the page suffice for the adapter as well. What each
// permission is for, package goredis finds out: the commands are the same.
func usersSuffice(t *testing.T, h Harness) {
	lines := Users(t)
	opts := map[string][]redisstore.Option{
		"single": {app}, "single-quarantine": {app}, "single-any-key": {app}, "single-cluster": {app},
		"fair": {app}, "fenced": {app}, "reentrant": {app}, "rwlock": {app},
		"single-polling":    {app, redisstore.WithoutWakes()},
		"single-no-scripts": {app, redisstore.WithoutScripts()},
		"single-replicas":   {app, redisstore.WithReplicas(1, 4*time.Second)},
	}
	for user := range lines {
		if _, tested := opts[user]; !tested && !slices.Contains([]string{"legacy", "check", "inspect", "list", "evict"}, user) {
			t.Errorf("nothing tests the user %s", user)
		}
	}
	for user, opts := range opts {
		if user == "single-cluster" && !h.Clusters {
			continue
		}
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			server := startFor(t, user)
			do(t, server, slices.Concat([]string{"ACL", "SETUSER", user}, lines[user], h.Needs[user])...)
			opts := append(opts, redisstore.WithMaxTTL(time.Hour))
			to := Server{Addr: server.Addr(), Cluster: user == "single-cluster"}
			theirs := h.store(t, to, opts...)
			to.User, to.Password = user, "secret"
			mine := h.store(t, to, opts...)
			if user == "single-quarantine" {
				mine, _ = h.Open(t, to, opts...)
			}
			keys := []string{"invoice/42"}
			if user == "single-any-key" {
				keys = append(keys, "{a}b", "a}b")
			}
			for _, key := range keys {
				live(t, server, key, locksFor(user, mine), locksFor(user, theirs), user == "single-polling", user != "single-no-scripts")
				if got := h.denied(t, server); len(got) > 0 {
					t.Errorf("refused on the way: %q", got)
				}
				lose(t, server, key, locksFor(user, mine))
				do(t, server, "ACL", "LOG", "RESET") // a loss makes one look for its cause, which these users may not
			}
		})
	}
	t.Run("legacy, check, inspect, list and evict", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes"))
		for _, user := range []string{"legacy", "check", "inspect", "list", "evict"} {
			do(t, server, append([]string{"ACL", "SETUSER", user}, lines[user]...)...)
		}
		ctx, store, errs := t.Context(), h.store(t, Server{Addr: server.Addr(), User: "legacy", Password: "secret"}, app), [10]error{}
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
		report, err := h.store(t, Server{Addr: server.Addr(), User: "check", Password: "secret"}).Check(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Problem == redisstore.ProblemPermission {
				t.Error(f)
			}
		}
		if _, err := h.store(t, Server{Addr: server.Addr()}, app).SetNX(ctx, "held", "token", 20*time.Second); err != nil {
			t.Fatal(err)
		}
		state, err := h.store(t, Server{Addr: server.Addr(), User: "inspect", Password: "secret"}, app).Inspect(ctx, "held")
		if err != nil || state.Holding != 1 {
			t.Fatalf("Inspect = %+v, %v", state, err)
		}
		page, err := h.store(t, Server{Addr: server.Addr(), User: "list", Password: "secret"}, app).List(ctx, "held", "", backends.MaxPage)
		if err != nil || len(page.Keys) != 1 {
			t.Errorf("List = %+v, %v", page, err)
		}
		evictor := h.store(t, Server{Addr: server.Addr(), User: "evict", Password: "secret"}, app)
		ok, err := evictor.Evict(ctx, "held", state.Holds[0].Print, backends.Eviction{Now: true, Foreign: true})
		if err != nil || !ok {
			t.Errorf("Evict = %v, %v", ok, err)
		}
		if got := h.denied(t, server); len(got) > 0 {
			t.Errorf("refused on the way: %q", got)
		}
	})
}

// startFor starts a server for a user of the page.
func startFor(t *testing.T, user string) *redistest.Server {
	switch user {
	case "single-cluster":
		server := redistest.Start(t, redistest.WithArgs("--cluster-enabled", "yes"))
		do(t, server, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		eventually(t, "the cluster is up", func() bool {
			return strings.Contains(do(t, server, "CLUSTER", "INFO").(string), "cluster_state:ok")
		})
		return server
	case "single-replicas":
		server := redistest.Start(t)
		host, port, _ := net.SplitHostPort(server.Addr())
		redistest.Start(t, redistest.WithArgs("--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
		eventually(t, "the replica follows", func() bool {
			return strings.Contains(do(t, server, "INFO", "replication").(string), "state=online")
		})
		return server
	}
	return redistest.Start(t)
}

// denied are the objects in the ACL LOG, but for those that the page calls merely worth adding, and
// what the client library can do without.
func (h Harness) denied(t *testing.T, server *redistest.Server) (all []string) {
	t.Helper()
	for _, entry := range do(t, server, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		object := fields[slices.Index(fields, any("object"))+1].(string)
		if !slices.Contains([]string{"ping", "unsubscribe", "unwatch", "client|setinfo"}, object) && !slices.Contains(h.Denied, object) {
			all = append(all, object)
		}
	}
	return all
}

func locksFor(user string, store *redisstore.Store) *locker.Client {
	l := single.New(store)
	switch user {
	case "fair":
		l = fair.New(store)
	case "fenced":
		l = fenced.New(store)
	case "reentrant":
		l = reentrant.New(store)
	case "rwlock":
		l = rwlock.New(store).Writers()
	}
	return locker.New(l, locker.WithTTL(10*time.Minute)) // what returns before was told, or woken
}

// live does all that one can do with a lock.
func live(t *testing.T, server *redistest.Server, key string, mine, theirs *locker.Client, polls, tickets bool) {
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
	var waits []locker.Option
	if !polls {
		waits = append(waits, locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
	}
	done := wait(ctx, mine, key, waits...)
	if !polls {
		eventually(t, "the wait", func() bool {
			queues := do(t, server, "KEYS", "*?queue").([]any)
			return strings.Contains(channels(t, server), key) || len(queues) > 0 || len(done) > 0
		})
	}
	must("Unlock by another", held.Unlock(ctx))
	must("Lock, Extend and Unlock", <-done)

	if tickets {
		given, err := theirs.TryLock(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := given.Transfer(ctx, 10*time.Minute)
		must("Transfer by another", err)
		resumed, err := mine.Resume(ctx, ticket)
		must("Resume", err)
		if err == nil {
			must("Unlock of what was resumed", resumed.Unlock(ctx))
		}
	}
}

// lose loses a lock, and learns of it.
func lose(t *testing.T, server *redistest.Server, key string, mine *locker.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lost, err := mine.TryLock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	do(t, server, "DEL", "app:"+key)
	if err := lost.Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of %q, which was lost = %v", key, err)
	}
}

// wait starts a Lock that waits, and extends and releases what it gets.
func wait(ctx context.Context, locks *locker.Client, key string, opts ...locker.Option) <-chan error {
	done := make(chan error, 1)
	go func() {
		l, err := locks.Lock(ctx, key, opts...)
		if err == nil {
			err = errors.Join(l.Extend(ctx, 20*time.Minute), l.Unlock(ctx))
		}
		done <- err
	}()
	return done
}

func overTLS(t *testing.T, h Harness) {
	server := redistest.Start(t)
	pki := httptest.NewTLSServer(nil) // its certificate is for 127.0.0.1, and vouches for itself
	defer pki.Close()
	roots := x509.NewCertPool()
	roots.AddCert(pki.Certificate())
	careless := terminate(t, server.Addr(), &tls.Config{Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12})
	careful := terminate(t, server.Addr(), &tls.Config{
		Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
	})
	theirs := locker.New(single.New(h.store(t, Server{Addr: server.Addr()}, redisstore.WithMaxTTL(time.Hour))), locker.WithTTL(30*time.Minute))
	once := func(addr string, config *tls.Config) error {
		for _, opts := range [][]redisstore.Option{{redisstore.WithoutQuarantine()}, nil} {
			store, closes := h.Open(t, Server{Addr: addr, TLS: config}, append(opts, redisstore.WithMaxTTL(time.Hour))...)
			held, err := theirs.TryLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			mine := locker.New(single.New(store), locker.WithTTL(30*time.Minute))
			done := wait(t.Context(), mine, "a", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
			eventually(t, "the wait, or an error", func() bool { return channels(t, server) != "" || len(done) > 0 })
			if err := held.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				return err
			}
			closes()
			eventually(t, "the end of the wait", func() bool { return channels(t, server) == "" })
		}
		return nil
	}
	lock := func(addr string, config *tls.Config) (err error) {
		for range 5 { // on a busy machine a handshake may take longer than a client library waits
			var late net.Error
			if err = once(addr, config); !errors.As(err, &late) || !late.Timeout() {
				break
			}
		}
		return err
	}
	trusting := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if err := lock(careless, trusting); err != nil {
		t.Errorf("Lock = %v", err)
	}
	for name, config := range map[string]*tls.Config{
		"that nobody vouches for": {RootCAs: x509.NewCertPool()}, "with another name": {RootCAs: roots, ServerName: "elsewhere.test"},
	} {
		if err := lock(careless, config); !errors.As(err, new(*tls.CertificateVerificationError)) {
			t.Errorf("Lock on a server %s = %v", name, err)
		}
	}
	if err := lock(careful, trusting); err == nil {
		t.Error("Lock without a certificate of the client = nil")
	}
	if err := lock(careful, &tls.Config{RootCAs: roots, Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("Lock with a certificate of the client = %v", err)
	}
}

// terminate listens with TLS and passes on to addr what comes.
func terminate(t *testing.T, addr string, config *tls.Config) string {
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
			go func() {
				defer func() { _ = near.Close() }()
				far, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer func() { _ = far.Close() }()
				go func() {
					_, _ = io.Copy(near, far)
					_ = near.Close()
				}()
				_, _ = io.Copy(far, near)
			}()
		}
	}()
	return l.Addr().String()
}
