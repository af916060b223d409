package legacy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/redis/go-redis/v9"
)

// A transcript is a recipe as in its comment, run by one client on one connection.
type transcript struct {
	name  string
	new   func(backends.LegacyStore) locker.Locker
	steps []step
}

type step struct {
	says string
	do   func(w *wire)
	want string
}

func TestEachRecipeSendsItsCommandsAndNoOthers(t *testing.T) {
	for _, script := range []transcript{
		{"Expire", legacy.Expire, []step{
			{"a free lock", (*wire).acquire, "SETNX PEXPIRE"},
			{"a held lock", (*wire).wantHeld, "SETNX PTTL"},
			{"an extension", (*wire).extend, "WATCH GET MULTI PEXPIRE EXEC"},
			{"a release", (*wire).release, "WATCH GET MULTI DEL EXEC"},
			{"what a killed process leaves", leave("someone"), ""},
			{"a repair", (*wire).wantHeld, "SETNX PTTL PEXPIRE"},
		}},
		{"GetSet", func(s backends.LegacyStore) locker.Locker { return legacy.GetSet(s) }, []step{
			{"a free lock", (*wire).acquire, "SETNX"},
			{"a held lock", (*wire).wantHeld, "SETNX GET"},
			{"an extension", (*wire).extend, "GET GETSET"},
			{"a release", (*wire).release, "DEL"},
			{"what a dead process leaves", leave(staleStamp()), ""},
			{"a take-over", (*wire).acquire, "SETNX GET GETSET"},
			{"a release", (*wire).release, "DEL"},
			{"what no GetSet leaves", leave("someone"), ""},
			{"a lock of another kind", (*wire).wantHeld, "SETNX GET PTTL"},
		}},
		{"SetBit", legacy.SetBit, []step{
			{"a free lock", (*wire).acquire, "SETBIT"},
			{"a held lock", (*wire).wantHeld, "SETBIT"},
			{"an extension", (*wire).extend, "GETBIT"},
			{"a release", (*wire).release, "SETBIT"},
		}},
		{"GetBit", legacy.GetBit, []step{
			{"a free lock", (*wire).acquire, "GETBIT SETBIT"},
			{"a held lock", (*wire).wantHeld, "GETBIT"},
			{"an extension", (*wire).extend, "GETBIT"},
			{"a release", (*wire).release, "SETBIT"},
		}},
	} {
		t.Run(script.name, func(t *testing.T) {
			w := listen(t, script.new)
			for _, s := range script.steps {
				s.do(w)
				if got := w.heard(); got != s.want {
					t.Errorf("%s: sent %q, want %q", s.says, got, s.want)
				}
			}
		})
	}
}

// A wire is a Locker with a record of everything that it sends.
type wire struct {
	t      *testing.T
	locker locker.Locker
	server *redistest.Server
	proxy  *redistest.Proxy
	before int
	lease  contract.Lease
}

func listen(t *testing.T, recipe func(backends.LegacyStore) locker.Locker) *wire {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 1})
	t.Cleanup(func() { client.Close() })
	store := goredis.New(client, beneath.Long)
	// The first commands of a client and a store on a connection, such as HELLO, are not part of
	// the recipe.
	if _, err := store.TxDeleteIf(t.Context(), "another", "value"); err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, locker: recipe(store), server: server, proxy: proxy}
	w.heard()
	return w
}

// heard returns the commands since the call before.
func (w *wire) heard() string {
	seen := w.proxy.Seen()
	since := seen[w.before:]
	w.before = len(seen)
	return strings.Join(since, " ")
}

func (w *wire) acquire() {
	w.t.Helper()
	var err error
	if w.lease, err = w.locker.Acquire(w.t.Context(), request(long)); err != nil {
		w.t.Fatalf("Acquire = %v", err)
	}
}

func (w *wire) wantHeld() {
	w.t.Helper()
	wantHeld(w.t, "another", w.locker, long)
}

func (w *wire) extend() {
	w.t.Helper()
	if _, err := w.locker.Extend(w.t.Context(), w.lease, 2*long); err != nil {
		w.t.Fatalf("Extend = %v", err)
	}
}

func (w *wire) release() {
	w.t.Helper()
	if err := w.locker.Release(w.t.Context(), w.lease); err != nil {
		w.t.Fatalf("Release = %v", err)
	}
}

// leave stores a value without expiry under the key.
func leave(value string) func(w *wire) {
	return func(w *wire) {
		if _, err := w.server.Do("SET", "key", value); err != nil {
			w.t.Fatal(err)
		}
	}
}

// staleStamp is an hour past, in seconds.
func staleStamp() string { return strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10) }
