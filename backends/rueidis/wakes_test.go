package rueidis_test

import (
	"context"
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

// channels are the names of the channels that somebody is subscribed to.
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

// connections counts the connections of a kind that the server has.
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
