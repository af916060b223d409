package rueidisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// silently is a store whose connection goes through a proxy, and is given up by rueidis limit after it has
// fallen silent.
func silently(t testing.TB, limit time.Duration) (*redisstore.Store, *redistest.Server, *redistest.Proxy) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := options(proxy.Addr())
	o.ForceSingleClient = true
	o.ConnWriteTimeout = limit
	store := rueidisstore.New(connect(t, o))
	setNX(t, store, "warm")
	return store, server, proxy
}

func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// While the connection of all calls is silent they share one other connection, and go back to the first one.
func TestCallsGoOverASecondConnectionWhileTheFirstIsSilent(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, 5*time.Second, goOverASecondConnection)
}

// goOverASecondConnection makes 100 pairs of calls within limit. After that, rueidis gives the first
// connection up.
func goOverASecondConnection(t testing.TB, limit time.Duration) {
	store, _, proxy := silently(t, limit)
	before := proxy.Open()
	proxy.Forsake()
	_, err := store.SetNX(within(t, 1200*time.Millisecond), "a", "token", 20*time.Second)
	if err == nil || backends.Unsent(err) {
		t.Fatalf("SetNX on a silent connection: %v; want an unknown outcome", err)
	}
	for range 100 {
		setNX(t, store, "b")
		if ok, err := store.DeleteIf(t.Context(), "b", "token"); !ok || err != nil {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
	}
	if n := proxy.Open(); n != before+1 {
		t.Errorf("%d connections; want one more than %d", n, before)
	}
	for proxy.Open() != before { // rueidis has given the first one up, and calls go over its successor
		setNX(t, store, "b")
		if ok, err := store.DeleteIf(t.Context(), "b", "token"); !ok || err != nil {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
	}
}

// A server that answers nobody gets one more connection at a time, also after rueidis has given up the first
// one. Calls that wait for a connection were not sent.
func TestAServerThatAnswersNobodyGetsOneMoreConnection(t *testing.T) {
	store, _, proxy := silently(t, time.Second)
	proxy.BlackHole(true)
	if _, err := store.SetNX(within(t, 1200*time.Millisecond), "a", "token", 20*time.Second); err == nil || backends.Unsent(err) {
		t.Fatalf("SetNX on a silent connection: %v; want an unknown outcome", err)
	}
	if _, err := store.SetNX(within(t, 100*time.Millisecond), "a", "token", 20*time.Second); !backends.Unsent(err) {
		t.Errorf("SetNX while a connection is opened: %v; want one that was not sent", err)
	}
	for range 50 { // rueidis gives up two connections or more
		if _, err := store.SetNX(within(t, 100*time.Millisecond), "a", "token", 20*time.Second); err == nil {
			t.Error("SetNX: nobody answers, and there is no error")
		}
		if n := opened(); n > 1 {
			t.Fatalf("%d second connections are opened at once", n)
		}
	}
	proxy.BlackHole(false)
	ended := within(t, 20*time.Second)
	for {
		if _, err := store.SetNX(ended, "a", "another", 20*time.Second); err == nil {
			break // held by the first token: what was withheld has gone on
		}
		if ended.Err() != nil {
			t.Fatal("the server answers again, and no call succeeds")
		}
	}
}

// opened counts the goroutines that open a second connection. One that closes its connection has given it up.
// No other test may run.
func opened() (n int) {
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "created by github.com/lockstep-go/lockstep/backends/rueidisstore.(*first).answering ") && !strings.Contains(stack, ").Close(") {
			n++
		}
	}
	return n
}

// Each call has less time than it takes to find that the connection is silent.
func TestCallsWithLittleTimeFindTheSecondConnection(t *testing.T) {
	t.Parallel()
	store, _, proxy := silently(t, 10*time.Minute) // rueidis itself does not find it
	proxy.Forsake()
	for n, began := 1, time.Now(); ; n++ {
		ok, err := store.ExpireIf(within(t, 300*time.Millisecond), "warm", "token", 20*time.Second)
		if ok && err == nil {
			return
		}
		if n >= 30 && time.Since(began) > 2*time.Minute { // for a busy machine
			t.Fatalf("the connection was silent for %d calls: %v", n, err)
		}
	}
}

// Calls whose ctx ends early on a slow server cost no connection in the end. On a busy machine a second may
// pass without an answer. Then one is opened, and eight if that one answers too late as well.
func TestASlowServerKeepsNoSecondConnection(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, time.Second, func(t testing.TB, _ time.Duration) { keepsNoSecondConnection(t) })
}

func keepsNoSecondConnection(t testing.TB) {
	relay := redistest.NewRelay(t, redistest.Start(t).Addr())
	o := options(relay.Addr())
	o.ForceSingleClient = true
	store := rueidisstore.New(connect(t, o))
	setNX(t, store, "slow")
	before := relay.Open()
	relay.Delay(300 * time.Millisecond)
	for range 20 {
		if _, err := store.SetNX(within(t, 150*time.Millisecond), "a", "token", 20*time.Second); err == nil {
			t.Error("SetNX was answered before the round trip was over")
		}
		if n := relay.Open(); n > before+1+8 {
			t.Errorf("%d connections; want %d", n, before)
		}
	}
	relay.Delay(0)
	for ended := within(t, time.Minute); relay.Open() != before; time.Sleep(time.Millisecond) {
		if ended.Err() != nil {
			t.Fatalf("%d connections in the end; want %d", relay.Open(), before)
		}
	}
}

// The connection answers again, and the server carries out what it was sent long ago. By then the cleanup
// of it was answered over the second connection, and confirmed for the last time.
func TestAGrantThatASilentConnectionBringsLateIsRemoved(t *testing.T) {
	t.Parallel()
	store, server, proxy := silently(t, 30*time.Second)
	const late = 6 * time.Second
	rule := proxy.Add(redistest.Rule{Fault: redistest.DelayRequest, Delay: late, Commands: []string{"SET"}})
	c := locker.New(single.New(store), locker.WithTTL(20*time.Second))
	if _, err := c.TryLock(within(t, 1200*time.Millisecond), "key"); err == nil {
		t.Fatal("TryLock: no error")
	}
	<-rule.Fired()
	sent := time.Now()
	ask := func(args ...string) any {
		reply, err := server.Do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	for !strings.Contains(fmt.Sprint(ask("INFO", "commandstats")), "cmdstat_set:calls=2,") { // the first was before
		if time.Since(sent) > 3*late {
			t.Fatal("the late grant did not come: the scene was not played")
		}
	}
	for came := time.Now(); ask("EXISTS", "key") == int64(1); {
		if time.Since(came) > 15*time.Second { // its TTL is longer
			t.Fatal("the late grant keeps the lock until its TTL")
		}
	}
}

// A client that is closed meanwhile leaves nothing that runs.
func TestAClientThatIsClosedWhileASecondConnectionIsUsed(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := options(proxy.Addr())
	o.ForceSingleClient = true
	client := connect(t, o)
	store := rueidisstore.New(client)
	setNX(t, store, "warm")
	proxy.Forsake()
	if _, err := store.SetNX(within(t, 1200*time.Millisecond), "a", "token", 20*time.Second); err == nil {
		t.Fatal("SetNX: no error")
	}
	setNX(t, store, "b")
	client.Close()
	stacks := make([]byte, 1<<20)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		all := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(all, "rueidis.executor.settle") && !strings.Contains(all, "rueidis.executor.open") {
			return
		}
		if time.Since(began) > 15*time.Second {
			t.Fatalf("still running:\n%s", all)
		}
	}
}
