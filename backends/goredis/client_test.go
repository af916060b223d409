package goredis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/redistest"
	client "github.com/redis/go-redis/v9"
)

// The clients that Client serves.
var (
	_ goredis.Client = (*client.Client)(nil)
	_ goredis.Client = (*client.ClusterClient)(nil)
	_ goredis.Client = client.UniversalClient(nil)
)

func TestOpenRefusesAServerThatWasJustStarted(t *testing.T) {
	server := redistest.Start(t)
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redis.WithMaxTTL(time.Minute))
	defer c.Close()
	_, err := store.SetNX(t.Context(), "a", "token", time.Minute)
	var quarantined *redis.QuarantineError
	if !errors.As(err, &quarantined) || quarantined.Needed != time.Minute+time.Second {
		t.Fatalf("SetNX = %v", err)
	}
	if left, err := server.Do("DBSIZE"); left != int64(0) || err != nil {
		t.Errorf("%v keys, %v: something was sent", left, err)
	}
}

func TestQuarantineEndsByItselfAndComesBackWithARestart(t *testing.T) {
	server := redistest.Start(t)
	const ttl = time.Second
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redis.WithMaxTTL(ttl))
	defer c.Close()
	granted := func() error {
		_, err := store.SetNX(t.Context(), "a", "token", ttl)
		return err
	}
	quarantined := func(err error) bool {
		var q *redis.QuarantineError
		return errors.As(err, &q)
	}
	for range 2 {
		if err := granted(); !quarantined(err) {
			t.Fatalf("SetNX on a fresh server = %v", err)
		}
		started := time.Now()
		eventually(t, "the end of quarantine", func() bool { return granted() == nil })
		if took := time.Since(started); took < ttl/2 {
			t.Errorf("quarantine ended after %v", took)
		}
		server.Kill()
		server.Restart()
		eventually(t, "the restart is noticed", func() bool { return granted() != nil })
	}
}

func TestQuarantineHookComesBeforeTheUsersOwn(t *testing.T) {
	server := redistest.Start(t)
	own := errors.New("own hook")
	o := &client.Options{Addr: server.Addr(), OnConnect: func(context.Context, *client.Conn) error { return own }}
	store, c := goredis.Open(o, redis.WithMaxTTL(time.Hour))
	defer c.Close()
	if _, err := store.SetNX(t.Context(), "a", "token", time.Minute); errors.Is(err, own) || err == nil {
		t.Errorf("SetNX in quarantine = %v", err)
	}
	open, c2 := goredis.Open(o, redis.WithoutQuarantine())
	defer c2.Close()
	if _, err := open.SetNX(t.Context(), "a", "token", time.Minute); !errors.Is(err, own) {
		t.Errorf("SetNX without quarantine = %v", err)
	}
}

func TestQuarantineNeedsThePermissionToAsk(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-info"); err != nil {
		t.Fatal(err)
	}
	store, c := goredis.Open(&client.Options{Addr: server.Addr(), Username: "locks", Password: "secret"})
	defer c.Close()
	_, err := store.SetNX(t.Context(), "a", "token", time.Minute)
	if reply := (*redis.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "NOPERM" || !strings.Contains(err.Error(), "INFO") {
		t.Errorf("SetNX = %v", err)
	}
}

func TestAServerThatTellsNoUptimePassesQuarantine(t *testing.T) {
	store, c := goredis.Open(&client.Options{Addr: startEmbedded(t)})
	defer c.Close()
	if r, err := store.SetNX(t.Context(), "a", "token", time.Minute); err != nil || !r.OK {
		t.Errorf("SetNX = %v, %v", r, err)
	}
}

func TestOpenHonoursTheDeadlineOfACtx(t *testing.T) {
	server := redistest.Start(t)
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redis.WithoutQuarantine())
	defer c.Close()
	if _, err := store.SetNX(t.Context(), "a", "token", time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := store.SetNX(ctx, "b", "token", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SetNX = %v", err)
	}
}

func TestOpenKeepsWhatTheOptionsSay(t *testing.T) {
	store, c := goredis.Open(&client.Options{Addr: "127.0.0.1:1", MaxRetries: 7, ReadTimeout: 5 * time.Second, DB: 3})
	defer c.Close()
	o := c.Options()
	if store == nil || o.MaxRetries != 7 || o.ReadTimeout != 5*time.Second || o.DB != 3 || o.WriteTimeout != time.Second || !o.ContextTimeoutEnabled {
		t.Errorf("options: %+v", o)
	}
}

func TestAServerThatIsDownIsAFault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	store := goredis.New(dial(t, &client.Options{Addr: l.Addr().String(), MaxRetries: -1}))
	_, err = store.SetNX(t.Context(), "a", "token", time.Minute)
	if op := (*net.OpError)(nil); !errors.As(err, &op) {
		t.Errorf("SetNX = %v", err)
	}
	if _, err := store.Check(t.Context()); err == nil {
		t.Error("Check = nil")
	}
}

// mock answers without a server, as a mock of a client does.
type mock struct{ answer func(cmd client.Cmder) error }

func (m mock) Process(_ context.Context, cmd client.Cmder) error { return m.answer(cmd) }

func (m mock) Watch(context.Context, func(*client.Tx) error, ...string) error { return nil }

func (m mock) Subscribe(context.Context, ...string) *client.PubSub { return nil }

func TestAMockOfAClientWillDo(t *testing.T) {
	var sent []string
	store := goredis.New(mock{func(cmd client.Cmder) error {
		sent = append(sent, cmd.Name())
		cmd.(interface{ SetVal(any) }).SetVal("OK") // of whatever type the command is
		return nil
	}})
	if r, err := store.SetNX(t.Context(), "a", "token", time.Minute); err != nil || !r.OK || len(sent) != 1 || sent[0] != "set" {
		t.Errorf("SetNX = %v, %v; sent %v", r, err, sent)
	}
}

func TestReleaseIsNotSentAgainByTheClientLibrary(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := goredis.New(dial(t, &client.Options{Addr: proxy.Addr(), MaxRetries: 5}))
	if _, err := store.SetNX(t.Context(), "a", "token", time.Minute); err != nil {
		t.Fatal(err)
	}
	proxy.Add(redistest.Rule{Fault: redistest.CutRequest, Commands: []string{"EVALSHA"}, Times: -1})
	if ok, err := store.DeleteIf(t.Context(), "a", "token"); ok || err == nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	if n := proxy.Count("EVALSHA"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	if ok, err := store.ExpireIf(t.Context(), "a", "token", time.Minute); ok || err == nil {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	if n := proxy.Count("EVALSHA"); n < 3 {
		t.Errorf("an extension was sent %d times: it may be, and go-redis does", n-1)
	}
}
