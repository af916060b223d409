package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

var stores = []struct {
	sentence string
	test     func(t *testing.T, h Harness)
}{
	{"a store without a client answers every call with an error", withoutClient},
	{"a free lock costs one native command", freeLock},
	{"scripts are sent again to a server that forgot them", forgottenScripts},
	{"channels and their connection last as long as somebody waits", channelsLast},
	{"a connection that was cut wakes, and is replaced", cutConnection},
	{"a connection that the server closed wakes, and is replaced", killedConnection},
	{"a channel that is not permitted is an error at once", deniedChannel},
	{"wrong credentials are an error at once, of a watch too", wrongCredentials},
}

func withoutClient(t *testing.T, h Harness) {
	for name, store := range h.Nil {
		_, set := store.SetNX(t.Context(), "key", "token", time.Second)
		_, expire := store.ExpireIf(t.Context(), "key", "token", time.Second)
		_, remove := store.DeleteIf(t.Context(), "key", "token")
		watch := store.Watch(t.Context(), "key", func() {})
		for _, err := range []error{set, expire, remove, watch} {
			if err == nil || err.Error() != "client is nil" {
				t.Errorf("%s: error %v; want that the client is nil", name, err)
			}
		}
	}
}

func freeLock(t *testing.T, h Harness) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	acquire(t, h.Store(t, Server{Addr: proxy.Addr()}), "a")
	if set, scripts := proxy.Count("SET"), proxy.Count("EVALSHA")+proxy.Count("EVAL"); set != 1 || scripts != 0 {
		t.Errorf("%d SET and %d scripts", set, scripts)
	}
}

func forgottenScripts(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := h.Store(t, Server{Addr: proxy.Addr()})
	for _, want := range []int{3, 3, 6} { // each of the three once, and once more
		if want == 6 {
			do(t, server, "SCRIPT", "FLUSH")
		}
		acquire(t, store, "a")
		if r, err := store.SetNX(t.Context(), "a", "other", 20*time.Second); err != nil || r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.ExpireIf(t.Context(), "a", "token", 20*time.Second); err != nil || !ok {
			t.Fatal(ok, err)
		}
		release(t, store, "a")
		if n := proxy.Count("EVAL"); n != want {
			t.Errorf("%d scripts were sent in full, want %d", n, want)
		}
	}
}

func channelsLast(t *testing.T, h Harness) {
	server := redistest.Start(t)
	store := h.Store(t, Server{Addr: server.Addr()})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 10 {
		watch(ctx, t, store, "a")
	}
	if got, n := channels(t, server), subscribers(t, server); got != "{a}:wake" || n != 1 {
		t.Errorf("channels %q on %d connections while somebody waits", got, n)
	}
	leave()
	eventually(t, "no channel and no connection", func() bool {
		return channels(t, server) == "" && subscribers(t, server) == 0
	})
}

func cutConnection(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	direct := h.Store(t, Server{Addr: server.Addr()})
	woken := watch(t.Context(), t, h.Store(t, Server{Addr: proxy.Addr()}), "a")
	for range 20 {
		proxy.CutAll()
		await(t, "a wake-up after the reconnect", woken)
		acquire(t, direct, "a")
		release(t, direct, "a")
		await(t, "a wake-up after a release", woken)
	}
}

func killedConnection(t *testing.T, h Harness) {
	server := redistest.Start(t)
	woken := watch(t.Context(), t, h.Store(t, Server{Addr: server.Addr()}), "a")
	if n := do(t, server, "CLIENT", "KILL", "TYPE", "pubsub"); n != int64(1) {
		t.Fatalf("%v connections were closed", n)
	}
	await(t, "a wake-up after the reconnect", woken)
	server.Kill()
	server.Restart()
	await(t, "a wake-up after the restart", woken)
}

func deniedChannel(t *testing.T, h Harness) {
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "locks", "on", ">secret", "~*", "+@all", "resetchannels", "&{permitted}*")
	store := h.Store(t, Server{server.Addr(), "locks", "secret"})
	watch(t.Context(), t, store, "permitted")
	err := store.Watch(t.Context(), "other", func() {})
	if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "NOPERM" || !reply.Permanent() {
		t.Errorf("Watch = %v", err)
	}
	// So is the wake-up of a release, after the release.
	acquire(t, store, "other")
	_, err = store.DeleteIf(t.Context(), "other", "token")
	if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || !reply.Permanent() {
		t.Errorf("DeleteIf = %v", err)
	}
	if n := do(t, server, "EXISTS", "other"); n != int64(0) {
		t.Error("the key is still there")
	}
}

func wrongCredentials(t *testing.T, h Harness) {
	server := redistest.Start(t, redistest.WithPassword("right"))
	store := h.Store(t, Server{Addr: server.Addr(), Password: "wrong"})
	_, set := store.SetNX(t.Context(), "a", "token", 20*time.Second)
	for name, err := range map[string]error{"SetNX": set, "Watch": store.Watch(t.Context(), "a", func() {})} {
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || !reply.Permanent() {
			t.Errorf("%s = %v", name, err)
		}
	}
}
