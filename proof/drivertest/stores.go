package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// storeSentence is one about a store over the adapter.
type storeSentence struct {
	says string
	test func(t *testing.T, h Harness)
}

var stores = []storeSentence{
	{"a store without a client answers every call with an error", withoutClient},
	{"a free lock costs one native command", freeLock},
	{"scripts are sent again to a server that forgot them", forgottenScripts},
	{"channels and their connection last as long as somebody waits", channelsLast},
	{"a connection that was cut wakes, and is replaced", cutConnection},
	{"a connection that the server closed wakes, and is replaced", killedConnection},
	{"a channel that is not permitted is an error at once", deniedChannel},
	{"Check reports a server as it is", checkReports},
	{"List sends one SCAN for each page, and looks at the keys that it finds", listPages},
	{"nothing is left behind when a wait ends", nothingLeft},
	{"nothing is left behind in a bubble", nothingLeftInABubble},
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
	acquire(t, h.store(t, Server{Addr: proxy.Addr()}), "a")
	if set, scripts := proxy.Count("SET"), proxy.Count("EVALSHA")+proxy.Count("EVAL"); set != 1 || scripts != 0 {
		t.Errorf("%d SET and %d scripts", set, scripts)
	}
}

func listPages(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const locks, others, limit = 50, 3000, 100
	do(t, server, "EVAL", "for i = 1, ARGV[1] do redis.call('SET', 'other' .. i, i) end", "0", strconv.Itoa(others))
	store := h.store(t, Server{Addr: proxy.Addr()}, app)
	for i := range locks {
		acquire(t, store, fmt.Sprint("lock", i))
	}
	before := proxy.Count("EVALSHA") + proxy.Count("EVAL")
	found, pages := map[string]bool{}, 0
	for after := ""; pages == 0 || after != ""; pages++ {
		page, err := store.List(trial.Patient(t), "", after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Keys) > 2*limit {
			t.Errorf("a page has %d keys", len(page.Keys))
		}
		for _, k := range page.Keys {
			found[k.Key] = k.Holding == 1
		}
		after = page.Next
	}
	if len(found) != locks || pages < others/limit/2 {
		t.Errorf("%d keys in %d pages; want %d", len(found), pages, locks)
	}
	// each of the calls at one time may find that the server does not know the script
	if scans, scripts := proxy.Count("SCAN"), proxy.Count("EVALSHA")+proxy.Count("EVAL")-before; scans != pages || scripts > 3*locks {
		t.Errorf("%d SCAN and %d scripts for %d pages", scans, scripts, pages)
	}
}

func forgottenScripts(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := h.store(t, Server{Addr: proxy.Addr()})
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
	store := h.store(t, Server{Addr: server.Addr()})
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
	direct := h.store(t, Server{Addr: server.Addr()})
	woken := watch(t.Context(), t, h.store(t, Server{Addr: proxy.Addr()}), "a")
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
	woken := watch(t.Context(), t, h.store(t, Server{Addr: server.Addr()}), "a")
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
	store := h.store(t, Server{Addr: server.Addr(), User: "locks", Password: "secret"})
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
	store := h.store(t, Server{Addr: server.Addr(), Password: "wrong"})
	_, set := store.SetNX(t.Context(), "a", "token", 20*time.Second)
	for name, err := range map[string]error{"SetNX": set, "Watch": store.Watch(t.Context(), "a", func() {})} {
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || !reply.Permanent() {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func checkReports(t *testing.T, h Harness) {
	r, err := h.store(t, Server{Addr: redistest.Start(t).Addr()}).Check(trial.Patient(t))
	if err != nil || r.RunID == "" || r.Role != "master" || r.Uptime < 0 || r.Eviction != "noeviction" || r.RoundTrip <= 0 {
		t.Errorf("Check = %+v, %v", r, err)
	}
}

// goroutines counts those of adapters and of the family, but not those of tests, nor those of
// cleanups that other tests have left: they go on for a while.
func goroutines() (n int) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		ours := strings.Contains(stack, "lockstep/backends/r") || strings.Contains(stack, "lockstep/backends/goredis") ||
			strings.Contains(stack, "redis/rueidis")
		if ours && !strings.Contains(stack, "_test.go") && !strings.Contains(stack, "drivertest/") && !strings.Contains(stack, "internal/cleanup") {
			n++
		}
	}
	return n
}

func nothingLeft(t *testing.T, h Harness) {
	for name, end := range map[string]func(server *redistest.Server, closes func()){
		"when the last waiter leaves":             func(*redistest.Server, func()) {},
		"when the client was closed before":       func(_ *redistest.Server, closes func()) { closes() },
		"when the server died before":             func(server *redistest.Server, _ func()) { server.Kill() },
		"when the server hangs":                   func(server *redistest.Server, _ func()) { server.Pause() },
		"when the server was restarted meanwhile": func(server *redistest.Server, _ func()) { server.Kill(); server.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := h.Connect(t, Server{Addr: server.Addr()})
			store := client.New()
			ctx, leave := context.WithCancel(t.Context())
			watch(ctx, t, store, "a")
			acquire(t, store, "a")
			attempt := func() <-chan struct{} {
				ended := make(chan struct{})
				go func() {
					_, _ = store.SetNX(ctx, "a", "other", 20*time.Second)
					close(ended)
				}()
				return ended
			}
			await(t, "an answer", attempt())
			end(server, client.Close)
			last := attempt()
			leave()
			<-last
			client.Close()
			eventually(t, "no goroutine", func() bool { return goroutines() == 0 })
			server.Kill()
			server.Restart()
			if n := strings.Count(do(t, server, "CLIENT", "LIST").(string), "id="); n != 1 { // the one that asks
				t.Errorf("%d connections after all was over", n)
			}
		})
	}
}

// nothingLeftInABubble is strict: the bubble panics when a goroutine is left.
func nothingLeftInABubble(t *testing.T, h Harness) {
	synctest.Test(t, func(t *testing.T) {
		store := h.Embedded(t).New()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		woken := watch(ctx, t, store, "a")
		time.Sleep(time.Hour) // pinging meanwhile
		acquire(t, store, "a")
		release(t, store, "a")
		synctest.Wait()
		if len(woken) != 1 {
			t.Errorf("woken %d times", len(woken))
		}
	})
}
