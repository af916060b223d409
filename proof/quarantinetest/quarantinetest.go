// Package quarantinetest checks the promises of the quarantine of package redisstore, with real
// servers, through any adapter.
package quarantinetest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Adapter opens stores through a client library.
type Adapter struct {
	// Open calls Open of the adapter, for a user of the server if there is a name. It closes the
	// store at the end of t.
	Open func(t *testing.T, addr, user, password string, opts ...redisstore.Option) *redisstore.Store
	// New calls New with a client whose connections the quarantine does not see.
	New func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store
	// Pooled is New with a client that has the quarantine, and so many connections in its pool. The application uses
	// the same client. It is nil if all calls share a connection.
	Pooled func(t *testing.T, addr string, connections int, opts ...redisstore.Option) (s *redisstore.Store, application driver.Executor)
}

const (
	short    = time.Second // the longest TTL where a test waits for the end of quarantine: 2 to 3 s
	long     = time.Minute // where it does not wait
	password = "secret"
)

// Run runs all tests.
func Run(t *testing.T, a Adapter) {
	tests := map[string]func(*testing.T, Adapter){
		"a new server works at once":                                      newServer,
		"a restart is waited out, by Lock too":                            restart,
		"renewals and releases go on":                                     renewals,
		"attempts send nothing and open no connections":                   attempts,
		"a replica that is promoted behind the same name":                 promotion,
		"a master that was a replica in between, on kept connections":     demotion,
		"a name that leads elsewhere: the older connections are closed":   moved,
		"two servers that answer in turn":                                 inTurn,
		"the strict form refuses a young server, seen or not":             strict,
		"without the permission for INFO":                                 unpermitted,
		"not noticed: a process that starts after the restart (V)":        startedAfter,
		"saved: with the strict form, a process that starts after it (S)": startedAfterStrict,
	}
	if a.Pooled != nil {
		maps.Copy(tests, map[string]func(*testing.T, Adapter){
			"a connection beside the pool notices another server":               besideNotices,
			"connections beside the pool to the server before are closed":       besideEnds,
			"beside the pool, renewals and releases go on at the server itself": besideGoesOn,
		})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, a)
		})
	}
}

func (a Adapter) open(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
	return a.Open(t, addr, "", "", opts...)
}

func newServer(t *testing.T, a Adapter) {
	server := redistest.Start(t)
	mustGrant(t, a.open(t, server.Addr()), "key", time.Second)
}

func restart(t *testing.T, a Adapter) {
	server := redistest.Start(t)
	store := a.open(t, server.Addr(), redisstore.WithMaxTTL(short))
	mustGrant(t, store, "key", short)
	server.Kill()
	server.Restart()
	refused := awaitQuarantine(t, store)
	if refused.Address != server.Addr() || !backends.Unsent(refused) || backends.Permanent(refused) || refused.ErrorType() != "quarantined" {
		t.Errorf("%v; unsent %v, permanent %v", refused, backends.Unsent(refused), backends.Permanent(refused))
	}
	if n := calls(t, server, "set"); n != 0 {
		t.Errorf("%d SETs were sent", n)
	}
	locks := locker.New(single.New(store), locker.WithTTL(short))
	for {
		l, err := locks.Lock(t.Context(), "key", locker.WithWait(time.Minute))
		if err == nil {
			if time.Now().Before(refused.Until) {
				t.Error("granted in quarantine")
			}
			_ = l.Unlock(t.Context())
			return
		}
		if !errors.As(err, new(*redisstore.QuarantineError)) {
			t.Fatalf("Lock = %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func renewals(t *testing.T, a Adapter) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	store := a.open(t, server.Addr(), redisstore.WithMaxTTL(long))
	mustGrant(t, store, "key", long)
	server.Kill()
	server.Restart()
	awaitQuarantine(t, store)
	if ok, err := store.ExpireIf(t.Context(), "key", "token", long); !ok || err != nil {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	if ok, err := store.DeleteIf(t.Context(), "key", "token"); !ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	if _, err := store.SetNX(t.Context(), "key", "token", long); !errors.As(err, new(*redisstore.QuarantineError)) {
		t.Errorf("SetNX of the lock that is free = %v", err)
	}
}

func attempts(t *testing.T, a Adapter) {
	server := redistest.Start(t)
	store := a.open(t, server.Addr(), redisstore.WithMaxTTL(long))
	mustGrant(t, store, "key", long)
	server.Kill()
	server.Restart()
	awaitQuarantine(t, store)
	locks := locker.New(single.New(store))
	before := [2]int{stat(t, server, "total_commands_processed"), stat(t, server, "total_connections_received")}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 1000 {
				if _, err := locks.TryLock(t.Context(), "key"); !errors.As(err, new(*redisstore.QuarantineError)) {
					t.Errorf("TryLock = %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
	commands, connections := stat(t, server, "total_commands_processed")-before[0], stat(t, server, "total_connections_received")-before[1]
	// from the test itself, and from a client library that keeps a connection open
	if commands > 20 || connections > 10 {
		t.Errorf("8000 attempts: %d commands and %d connections", commands, connections)
	}
}

func promotion(t *testing.T, a Adapter) {
	master, replica := replicated(t)
	name := forward(t, master.Addr())
	store := a.open(t, name.addr(), redisstore.WithMaxTTL(short))
	mustGrant(t, store, "key", short)

	must(t, replica, "REPLICAOF", "NO", "ONE")
	name.to(replica.Addr())
	follow(t, master, replica)
	refused := awaitQuarantine(t, store)
	if n := calls(t, replica, "set"); n > 1 { // one comes from replication
		t.Errorf("%d SETs were sent to the new master", n)
	}
	if n := calls(t, master, "set"); n != 1 {
		t.Errorf("%d SETs were carried out by the old master", n)
	}
	awaitGrant(t, store, refused)
}

func demotion(t *testing.T, a Adapter) {
	one, other := replicated(t)
	store := a.open(t, one.Addr(), redisstore.WithMaxTTL(long))
	mustGrant(t, store, "key", long)
	must(t, other, "REPLICAOF", "NO", "ONE")
	follow(t, one, other)
	// It fails by READONLY, or since the server is a replica.
	if r, err := store.SetNX(t.Context(), "another key", "token", long); err == nil {
		t.Errorf("SetNX on a replica = %+v", r)
	}
	must(t, one, "REPLICAOF", "NO", "ONE")
	awaitQuarantine(t, store)
}

func moved(t *testing.T, a Adapter) {
	first, second := redistest.Start(t), redistest.Start(t)
	name := forward(t, first.Addr())
	store := a.open(t, name.addr(), redisstore.WithMaxTTL(short))
	mustGrant(t, store, "key", short)
	before := calls(t, first, "set")
	name.to(second.Addr())
	// The connections to the first server go on, and it is still a master. Only a new connection
	// shows the change.
	await(t, "a new connection", func() bool { return store.Watch(t.Context(), "key", func() {}) == nil })
	refused := awaitQuarantine(t, store)
	awaitGrant(t, store, refused)
	for i := range 20 {
		mustGrant(t, store, fmt.Sprint("key", i), short)
	}
	if n := calls(t, first, "set"); n != before {
		t.Errorf("%d grants by the server that the name has left", n-before)
	}
}

func inTurn(t *testing.T, a Adapter) {
	first, second := redistest.Start(t), redistest.Start(t)
	name := forward(t, first.Addr(), second.Addr())
	store := a.open(t, name.addr(), redisstore.WithMaxTTL(long))
	mustGrant(t, store, "key", long)
	var err error
	await(t, "a permanent error", func() bool {
		_ = store.Watch(t.Context(), "key", func() {}) // needs a connection
		_, _ = store.ExpireIf(t.Context(), "key", "token", long)
		_, err = store.SetNX(t.Context(), "other", "token", long)
		return backends.Permanent(err)
	})
	if !strings.Contains(err.Error(), "several servers answer at "+name.addr()) {
		t.Errorf("SetNX = %v", err)
	}
}

func strict(t *testing.T, a Adapter) {
	server := redistest.Start(t)
	store := a.open(t, server.Addr(), redisstore.WithMaxTTL(short), redisstore.WithQuarantine(2*time.Second))
	_, err := store.SetNX(t.Context(), "key", "token", short)
	refused := (*redisstore.QuarantineError)(nil)
	if !errors.As(err, &refused) || !backends.Unsent(err) {
		t.Fatalf("SetNX = %v", err)
	}
	if n := calls(t, server, "set"); n != 0 {
		t.Errorf("%d SETs were sent", n)
	}
	if ok, err := store.DeleteIf(t.Context(), "key", "token"); ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	awaitGrant(t, store, refused)
	for name, bad := range map[string]*redisstore.Store{
		"shorter than the longest TTL":  a.open(t, server.Addr(), redisstore.WithQuarantine(time.Millisecond)),
		"connections that are not seen": a.New(t, server.Addr(), redisstore.WithQuarantine(time.Hour)),
	} {
		if _, err := bad.SetNX(t.Context(), "key", "token", short); !backends.Permanent(err) || !strings.Contains(err.Error(), "WithQuarantine") {
			t.Errorf("%s: SetNX = %v", name, err)
		}
	}
}

func unpermitted(t *testing.T, a Adapter) {
	server := redistest.Start(t)
	must(t, server, "ACL", "SETUSER", "locks", "on", ">"+password, "~*", "&*", "+@all", "-info")
	store := a.Open(t, server.Addr(), "locks", password)
	mustGrant(t, store, "key", time.Second)
	report, err := store.Check(trial.Patient(t))
	if err != nil || len(report.Findings) == 0 || report.Findings[0].Problem != redisstore.ProblemPermission ||
		!strings.Contains(report.Findings[0].Consequence, "quarantine") {
		t.Errorf("Check = %v, %v", report.Findings, err)
	}
	refusing := a.Open(t, server.Addr(), "locks", password, redisstore.WithMaxTTL(short), redisstore.WithQuarantine(time.Minute))
	if _, err := refusing.SetNX(t.Context(), "key", "token", time.Second); !backends.Permanent(err) || !strings.Contains(err.Error(), "INFO") {
		t.Errorf("SetNX = %v", err)
	}
}

func startedAfter(t *testing.T, a Adapter) {
	if _, err := afterRestart(t, a); err != nil {
		t.Errorf("the process that came later: %v; the docs say that it is granted the lock", err)
	}
}

func startedAfterStrict(t *testing.T, a Adapter) {
	if _, err := afterRestart(t, a, redisstore.WithQuarantine(long)); !errors.As(err, new(*redisstore.QuarantineError)) {
		t.Errorf("the process that came later: %v", err)
	}
}

// afterRestart asks for a lock that another store was granted before a restart. The options are for
// the store that asks.
func afterRestart(t *testing.T, a Adapter, opts ...redisstore.Option) (bool, error) {
	server := redistest.Start(t)
	mustGrant(t, a.open(t, server.Addr(), redisstore.WithMaxTTL(long)), "key", long)
	server.Kill()
	server.Restart()
	later := a.open(t, server.Addr(), append(opts, redisstore.WithMaxTTL(long))...)
	r, err := later.SetNX(t.Context(), "key", "other", long)
	return r.OK, err
}

func replicated(t *testing.T) (master, replica *redistest.Server) {
	master = redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	replica = redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	follow(t, replica, master)
	return master, replica
}

func follow(t *testing.T, replica, master *redistest.Server) {
	host, port, _ := strings.Cut(master.Addr(), ":")
	must(t, replica, "REPLICAOF", host, port)
	await(t, "the replica follows", func() bool {
		return strings.Contains(must(t, replica, "INFO", "replication").(string), "master_link_status:up")
	})
}

func mustGrant(t *testing.T, store *redisstore.Store, key string, ttl time.Duration) {
	t.Helper()
	if r, err := store.SetNX(t.Context(), key, "token", ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

// awaitQuarantine asks until the store has noticed the change: the first calls may fail on a
// connection that has just ended. Nothing may be granted meanwhile.
func awaitQuarantine(t *testing.T, store *redisstore.Store) *redisstore.QuarantineError {
	t.Helper()
	refused := (*redisstore.QuarantineError)(nil)
	await(t, "quarantine", func() bool {
		r, err := store.SetNX(t.Context(), "another key", "token", time.Second)
		if r.OK {
			t.Fatal("granted")
		}
		return errors.As(err, &refused)
	})
	return refused
}

// awaitGrant asks until a grant, which must not come during quarantine.
func awaitGrant(t *testing.T, store *redisstore.Store, refused *redisstore.QuarantineError) {
	t.Helper()
	await(t, "a grant", func() bool {
		r, err := store.SetNX(t.Context(), "another key", "token", time.Second)
		if r.OK && time.Now().Before(refused.Until) {
			t.Fatal("granted in quarantine")
		}
		if backends.Permanent(err) { // a machine that stands still opens no connection in time
			t.Fatalf("SetNX = %v", err)
		}
		return r.OK
	})
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func must(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// calls returns how often the server has executed a command.
func calls(t *testing.T, server *redistest.Server, command string) int {
	return number(must(t, server, "INFO", "commandstats"), "cmdstat_"+command+":calls=")
}

func stat(t *testing.T, server *redistest.Server, name string) int {
	return number(must(t, server, "INFO", "stats"), name+":")
}

func number(info any, before string) int {
	found := regexp.MustCompile(regexp.QuoteMeta(before) + `(\d+)`).FindStringSubmatch(fmt.Sprint(info))
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
