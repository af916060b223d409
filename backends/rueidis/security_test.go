package rueidis_test

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/rueidis"
)

// That the users of docs/security.md suffice for rueidis as well. What each permission is for, package goredis finds out: the
// commands are the same.

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

// denied are the objects in the ACL LOG, but for what rueidis sends by itself and goes on without: pings, and what takes back
// the subscriptions of a connection.
func denied(t *testing.T, server *redistest.Server) (all []string) {
	t.Helper()
	harmless := []string{"ping", "unsubscribe", "punsubscribe", "sunsubscribe", "discard", "unwatch"}
	for _, entry := range command(t, server, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		object := fields[slices.Index(fields, any("object"))+1].(string)
		if !slices.Contains(harmless, object) {
			all = append(all, object)
		}
	}
	return all
}

// as makes the options of user.
func as(user string, addrs ...string) client.ClientOption {
	o := options(addrs...)
	o.Username, o.Password = user, "secret"
	o.ClientSetInfo = client.DisableClientSetInfo
	o.ForceSingleClient = true
	return o
}

var app = redisstore.WithPrefix("app:")

func TestACLsOfThePageSuffice(t *testing.T) {
	lines := users(t)
	for user, opts := range map[string][]redisstore.Option{
		"single": {app}, "single-quarantine": {app}, "single-any-key": {app}, "fair": {app}, "fenced": {app},
		"reentrant":         {app},
		"single-cluster":    {app},
		"single-polling":    {app, redisstore.WithoutWakes()},
		"single-no-scripts": {app, redisstore.WithoutScripts()},
		"single-replicas":   {app, redisstore.WithReplicas(1, 4*time.Second)},
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			var args []redistest.Option
			if user == "single-cluster" {
				args = append(args, redistest.WithArgs("--cluster-enabled", "yes"))
			}
			server := redistest.Start(t, args...)
			command(t, server, append([]string{"ACL", "SETUSER", user}, lines[user]...)...)
			mine := as(user, server.Addr())
			switch user {
			case "single-cluster":
				command(t, server, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
				eventually(t, "the cluster is up", func() bool {
					return strings.Contains(command(t, server, "CLUSTER", "INFO").(string), "cluster_state:ok")
				})
				mine.ForceSingleClient = false
			case "single-replicas":
				host, port, _ := net.SplitHostPort(server.Addr())
				redistest.Start(t, redistest.WithArgs("--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
				eventually(t, "the replica follows", func() bool {
					return strings.Contains(command(t, server, "INFO", "replication").(string), "state=online")
				})
			case "single-quarantine":
				_ = rueidis.Quarantine(&mine) // asks, whatever the store makes of it
			}
			key := "invoice/42"
			if user == "single-any-key" {
				key = "{a}b"
			}
			polls := user == "single-polling"
			live(t, server, key, locks(user, connect(t, mine), opts), locks(user, dial(t, server.Addr()), opts), polls)
			if got := denied(t, server); len(got) > 0 {
				t.Errorf("refused on the way: %q", got)
			}
		})
	}
}

func locks(user string, c client.Client, opts []redisstore.Option) *locker.Client {
	store := rueidis.New(c, append(opts, redisstore.WithMaxTTL(time.Hour))...)
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
		eventually(t, "the wait", func() bool { return channels(t, server) != "" || len(done) > 0 })
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

func TestWhatRueidisSendsToOpenAConnection(t *testing.T) {
	server := redistest.Start(t)
	command(t, server, append([]string{"ACL", "SETUSER", "single"}, users(t)["single"]...)...)
	proxy := redistest.NewProxy(t, server.Addr())
	o := as("single", proxy.Addr())
	o.ClientSetInfo = nil
	store, _ := open(t, o, redisstore.WithoutQuarantine(), app)
	setNX(t, store, "a")
	if seen := proxy.Seen(); len(seen) < 2 || seen[0] != "HELLO" || seen[1] != "SET" {
		t.Errorf("sent %v", seen)
	}
	for permission, set := range map[string]func(o *client.ClientOption){
		"+select":          func(o *client.ClientOption) { o.SelectDB = 1 },
		"+client|tracking": func(o *client.ClientOption) { o.DisableCache = false },
	} {
		for _, rules := range [][]string{users(t)["single"], append(slices.Clone(users(t)["single"]), permission)} {
			command(t, server, append([]string{"ACL", "SETUSER", "single"}, rules...)...)
			o := as("single", server.Addr())
			set(&o)
			c, err := client.NewClient(o)
			c.Close()
			if refused := err != nil; refused == slices.Contains(rules, permission) {
				t.Errorf("%s: %v", permission, err)
			}
		}
	}
}
