package goredis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
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

func TestChannelsAndTheirConnectionLastAsLongAsSomeoneWaits(t *testing.T) {
	server := redistest.Start(t)
	store := goredis.New(dial(t, &client.Options{Addr: server.Addr()}))
	channels := func() string {
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
	connections := func() int {
		reply, err := server.Do("CLIENT", "LIST", "TYPE", "pubsub")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(reply.(string), "id=")
	}
	var leave []context.CancelFunc
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		if err := store.Watch(ctx, "a", func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if got := channels(); got != "{a}:wake" || connections() != 1 {
		t.Errorf("channels %q on %d connections while someone waits", got, connections())
	}
	for _, cancel := range leave {
		cancel()
	}
	eventually(t, "no channel and no connection", func() bool { return channels() == "" && connections() == 0 })
}

func TestAConnectionThatWasCutIsAHintAndHearsAgain(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	waiting := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	direct := goredis.New(dial(t, &client.Options{Addr: server.Addr()}))
	woken := make(chan struct{}, 100)
	if err := waiting.Watch(t.Context(), "a", func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		proxy.CutAll()
		await(t, "a hint after the reconnect", woken)
		if _, err := direct.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if ok, err := direct.DeleteIf(t.Context(), "a", "token"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		await(t, "the wake of a release", woken)
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

func TestAChannelThatIsNotPermittedIsRefusedAtOnce(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">secret", "~*", "+@all", "resetchannels", "&{permitted}*"); err != nil {
		t.Fatal(err)
	}
	store := goredis.New(dial(t, &client.Options{Addr: server.Addr(), Username: "locks", Password: "secret"}))
	if err := store.Watch(t.Context(), "permitted", func() {}); err != nil {
		t.Fatal(err)
	}
	err := store.Watch(t.Context(), "other", func() {})
	if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "NOPERM" || !reply.Permanent() {
		t.Errorf("Watch = %v", err)
	}
	// and so is the wake of a release, after the release
	if _, err := store.SetNX(t.Context(), "other", "token", 20*time.Second); err != nil {
		t.Fatal(err)
	}
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
	store := goredis.New(dial(t, &client.Options{Addr: server.Addr(), Password: "wrong"}))
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
	store := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	cycle := func() {
		t.Helper()
		if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
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
	cycle()
	cycle()
	if n := proxy.Count("EVAL"); n != 3 {
		t.Errorf("%d scripts were sent in full, want each of the three once", n)
	}
	if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	cycle()
	if n := proxy.Count("EVAL"); n != 6 {
		t.Errorf("%d scripts were sent in full, want each of the three once more", n)
	}
}

func TestAFreeLockCostsOneNativeCommand(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if set, scripts := proxy.Count("SET"), proxy.Count("EVALSHA")+proxy.Count("EVAL"); set != 1 || scripts != 0 {
		t.Errorf("%d SET and %d scripts", set, scripts)
	}
}

var _ backends.Store = (*redisstore.Store)(nil)
