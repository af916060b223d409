package rueidis_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

// patience is how long a test waits for what must happen on any machine.
const patience = 20 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// channels and connections are what the server knows of waiters.
func channels(t *testing.T, server *redistest.Server) string {
	reply, err := server.Do("PUBSUB", "CHANNELS")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range reply.([]any) {
		names = append(names, name.(string))
	}
	return strings.Join(names, " ")
}

func connections(t *testing.T, server *redistest.Server, kind string) int {
	reply, err := server.Do("CLIENT", "LIST", "TYPE", kind)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(reply.(string), "id=")
}

// goroutines counts those that are in this package, in the family's or in rueidis, but not in tests that run beside, nor those of
// clean-ups that other tests have left: they go on for a while.
func goroutines() (n int) {
	buf := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		ours := strings.Contains(stack, "lockstep/backends/r") || strings.Contains(stack, "redis/rueidis")
		if ours && !strings.Contains(stack, "_test.go") && !strings.Contains(stack, "internal/cleanup") {
			n++
		}
	}
	return n
}

func watch(ctx context.Context, t *testing.T, store backends.Store, key string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 100)
	if err := store.Watch(ctx, key, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	return woken
}

func TestChannelsAndTheirConnectionLastAsLongAsSomeoneWaits(t *testing.T) {
	server := redistest.Start(t)
	store := rueidis.New(dial(t, server.Addr()))
	var leave []context.CancelFunc
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		watch(ctx, t, store, "a")
	}
	if got := channels(t, server); got != "{a}:wake" || connections(t, server, "pubsub") != 1 {
		t.Errorf("channels %q on %d connections while someone waits", got, connections(t, server, "pubsub"))
	}
	for _, cancel := range leave {
		cancel()
	}
	eventually(t, "no channel and no connection", func() bool {
		return channels(t, server) == "" && connections(t, server, "pubsub") == 0
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	for name, end := range map[string]func(server *redistest.Server, c client.Client){
		"when the last waiter leaves":             func(*redistest.Server, client.Client) {},
		"when the client was closed before":       func(_ *redistest.Server, c client.Client) { c.Close() },
		"when the server died before":             func(server *redistest.Server, _ client.Client) { server.Kill() },
		"when the server hangs":                   func(server *redistest.Server, _ client.Client) { server.Pause() },
		"when the server was restarted meanwhile": func(server *redistest.Server, _ client.Client) { server.Kill(); server.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			c := dial(t, server.Addr())
			store := rueidis.New(c)
			ctx, cancel := context.WithCancel(t.Context())
			watch(ctx, t, store, "a")
			setNX(t, store, "a")
			hang := make(chan error, 1)
			go func() {
				_, err := store.SetNX(ctx, "a", "other", 20*time.Second)
				hang <- err
			}()
			<-hang
			end(server, c)
			go func() {
				_, err := store.SetNX(ctx, "a", "other", 20*time.Second)
				hang <- err
			}()
			cancel()
			<-hang
			c.Close()
			eventually(t, "no goroutine", func() bool { return goroutines() == 0 })
			server.Kill()
			server.Restart()
			if n := connections(t, server, "pubsub") + connections(t, server, "normal"); n != 1 { // the one that asks
				t.Errorf("%d connections after all was over", n)
			}
		})
	}
}

// TestNothingIsLeftBehindInABubble is strict: the bubble panics when a goroutine is left.
func TestNothingIsLeftBehindInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := rueidis.New(embed(t))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		woken := watch(ctx, t, store, "a")
		time.Sleep(time.Hour) // pinging meanwhile
		setNX(t, store, "a")
		if ok, err := store.DeleteIf(ctx, "a", "token"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		synctest.Wait()
		if len(woken) != 1 {
			t.Errorf("woken %d times", len(woken))
		}
	})
}

func TestAConnectionThatWasCutIsAHintAndHearsAgain(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	direct := rueidis.New(dial(t, server.Addr()))
	woken := watch(t.Context(), t, rueidis.New(dial(t, proxy.Addr())), "a")
	for range 20 {
		proxy.CutAll()
		await(t, "a hint after the reconnect", woken)
		setNX(t, direct, "a")
		if ok, err := direct.DeleteIf(t.Context(), "a", "token"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		await(t, "the wake of a release", woken)
	}
}

func TestAConnectionThatWasKilledByTheServerHearsAgain(t *testing.T) {
	server := redistest.Start(t)
	woken := watch(t.Context(), t, rueidis.New(dial(t, server.Addr())), "a")
	if n, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); n != int64(1) || err != nil {
		t.Fatal(n, err)
	}
	await(t, "a hint after the reconnect", woken)
	server.Kill()
	server.Restart()
	await(t, "a hint after the restart", woken)
}

// TestASilentConnectionForWakesIsReplaced waits for two pings, some seconds. Open sets a read timeout that is shorter.
func TestASilentConnectionForWakesIsReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store, _ := open(t, options(proxy.Addr()), redisstore.WithoutQuarantine())
	woken := watch(t.Context(), t, store, "a")
	eventually(t, "a ping", func() bool { return proxy.Count("PING") > 0 })
	if n := proxy.Count("SUBSCRIBE"); n != 1 {
		t.Errorf("subscribed %d times while all was well", n)
	}
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"PING"}, Times: 2}) // on both connections
	await(t, "a hint on a new connection", woken)
}

func TestAChannelThatIsNotPermittedIsRefusedAtOnce(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">secret", "~*", "+@all", "resetchannels", "&{permitted}*"); err != nil {
		t.Fatal(err)
	}
	o := options(server.Addr())
	o.Username, o.Password = "locks", "secret"
	store := rueidis.New(connect(t, o))
	watch(t.Context(), t, store, "permitted")
	err := store.Watch(t.Context(), "other", func() {})
	if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "NOPERM" || !reply.Permanent() {
		t.Errorf("Watch = %v", err)
	}
	// and so is the wake of a release, after the release
	setNX(t, store, "other")
	_, err = store.DeleteIf(t.Context(), "other", "token")
	if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || !reply.Permanent() {
		t.Errorf("DeleteIf = %v", err)
	}
	if left, err := server.Do("EXISTS", "other"); left != int64(0) || err != nil {
		t.Errorf("the key is still there: %v, %v", left, err)
	}
}

func TestWrongCredentialsAreToldAtOnceAlsoToWhoWatches(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("right"))
	o := options(server.Addr())
	o.Password = "wrong"
	store, _ := open(t, o, redisstore.WithoutQuarantine())
	for name, err := range map[string]error{
		"SetNX": func() error { _, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); return err }(),
		"Watch": store.Watch(t.Context(), "a", func() {}),
	} {
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || !reply.Permanent() {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestScriptsAreSentAgainToAServerThatForgotThem(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := rueidis.New(dial(t, proxy.Addr()))
	cycle := func() {
		t.Helper()
		setNX(t, store, "a")
		if r, err := store.SetNX(t.Context(), "a", "other", 20*time.Second); err != nil || r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.ExpireIf(t.Context(), "a", "token", 20*time.Second); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if ok, err := store.DeleteIf(t.Context(), "a", "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	for _, want := range []int{3, 3, 6} { // each of the three once, and once more
		if want == 6 {
			if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
				t.Fatal(err)
			}
		}
		cycle()
		if n := proxy.Count("EVAL"); n != want {
			t.Errorf("%d scripts were sent in full, want %d", n, want)
		}
	}
}
