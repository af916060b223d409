package goredis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// The clients that Client serves.
var (
	_ goredis.Client = (*client.Client)(nil)
	_ goredis.Client = (*client.ClusterClient)(nil)
	_ goredis.Client = client.UniversalClient(nil)
)

func TestOpenHonoursTheDeadlineOfACtx(t *testing.T) {
	server := redistest.Start(t)
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redisstore.WithoutQuarantine())
	defer c.Close()
	if _, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := store.SetNX(ctx, "b", "token", 20*time.Second); !errors.Is(err, context.DeadlineExceeded) {
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

// Counterexample: a client without timeouts. A call on the goroutine of its caller would wait for ever
// for a server that has fallen silent.
func TestCallsEndByThemselvesOnlyIfTheTimeoutsOfTheClientAreShort(t *testing.T) {
	for name, c := range map[string]struct {
		read, write time.Duration
		ends        bool
	}{
		"default options":            {0, 0, true},
		"as long as is short":        {prompt.Overrun, prompt.Overrun, true},
		"a read may take longer":     {prompt.Overrun + time.Millisecond, time.Second, false},
		"a write may take longer":    {time.Second, prompt.Overrun + time.Millisecond, false},
		"a read has no timeout":      {-1, time.Second, false},
		"a write has no timeout":     {time.Second, -1, false},
		"a read sets no deadline":    {-2, time.Second, false},
		"a write sets no deadline":   {time.Second, -2, false},
		"neither of them has limits": {-1, -1, false},
	} {
		one := client.NewClient(&client.Options{Addr: "127.0.0.1:1", ReadTimeout: c.read, WriteTimeout: c.write})
		defer one.Close()
		cluster := client.NewClusterClient(&client.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: c.read, WriteTimeout: c.write})
		defer cluster.Close()
		if a, b := prompt.Of(goredis.New(one)), prompt.Of(goredis.New(cluster)); a != c.ends || b != c.ends {
			t.Errorf("%s: one server %v, a cluster %v; want %v", name, a, b, c.ends)
		}
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
	if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK || len(sent) != 1 || sent[0] != "set" {
		t.Errorf("SetNX = %v, %v; sent %v", r, err, sent)
	}
}

func dial(t *testing.T, o *client.Options) *client.Client { return goredis.Dial(t, o) }

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

func startEmbedded(t *testing.T) string {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr()
}
