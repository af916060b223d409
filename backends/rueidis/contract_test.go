package rueidis_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/internal/verify/race"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

// What each mode of a store is tested with.
var modes = map[string]contracts{
	"plain":           {},
	"with prefix":     {opts: []redisstore.Option{redisstore.WithPrefix("app {1}:")}, prefix: "app {1}:"},
	"without wakes":   {opts: []redisstore.Option{redisstore.WithPrefix("polling:"), redisstore.WithoutWakes()}, prefix: "polling:", polling: true},
	"without scripts": {opts: []redisstore.Option{redisstore.WithPrefix("optimistic:"), redisstore.WithoutScripts()}, prefix: "optimistic:", scriptless: true},
}

type contracts struct {
	opts       []redisstore.Option
	prefix     string
	polling    bool
	scriptless bool

	connect func(t *testing.T) client.Client
	bubble  bool
}

// torture runs the contracts in every mode and everywhere; otherwise those that mean something else to another client library.
var torture = os.Getenv("LOCKSTEP_TORTURE") == "1"

func TestContractOnRedis(t *testing.T) {
	c := dial(t, redistest.Start(t).Addr())
	for name, m := range modes {
		if name != "plain" && !m.scriptless && !torture {
			continue
		}
		m.connect = func(*testing.T) client.Client { return c }
		t.Run(name, m.run)
	}
}

func TestContractInRESP2(t *testing.T) {
	o := options(redistest.Start(t).Addr())
	o.AlwaysRESP2 = true
	c := connect(t, o)
	for _, name := range []string{"plain", "without scripts"} {
		m := modes[name]
		m.connect = func(*testing.T) client.Client { return c }
		t.Run(name, m.run)
	}
}

// TestContractOnEmbedded is in fake time, where nothing may be left behind when a sentence ends.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	contracts{connect: embed, bubble: true}.run(t)
}

func TestContractThroughACluster(t *testing.T) {
	t.Parallel()
	c := dial(t, redistest.StartCluster(t, 3, 0).Addrs()...)
	if c.Mode() != client.ClientModeCluster {
		t.Fatalf("mode %v", c.Mode())
	}
	for _, name := range []string{"plain", "without scripts"} {
		m := modes[name]
		m.connect = func(*testing.T) client.Client { return c }
		t.Run(name, m.run)
	}
}

// run runs all that a store can do.
func (c contracts) run(t *testing.T) {
	t.Run("Store", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o outside) (backends.Store, backendtest.Outside) { return s, o }))
	})
	t.Run("started", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o outside) (backends.Store, backendtest.Outside) {
			return starting.Awaited(s), o
		}))
	})
	if c.bubble && !torture {
		return
	}
	t.Run("LegacyStore", func(t *testing.T) {
		backendtest.RunLegacy(t, harness(c, func(s *redisstore.Store, o outside) (backends.LegacyStore, backendtest.Outside) { return s, o }))
	})
	if c.scriptless {
		return
	}
	if !c.polling {
		t.Run("QueuedStore", func(t *testing.T) {
			backendtest.RunQueued(t, harness(c, func(s *redisstore.Store, o outside) (backends.QueuedStore, backendtest.Outside) { return s, o }))
		})
	}
	t.Run("NumberedStore", func(t *testing.T) {
		h := harness(c, func(s *redisstore.Store, o outside) (backends.NumberedStore, backendtest.Outside) { return s, o })
		h.NoQueue = c.polling
		backendtest.RunNumbered(t, h)
	})
	t.Run("FencedStore", func(t *testing.T) {
		backendtest.RunFenced(t, harness(c, func(s *redisstore.Store, o outside) (backends.FencedStore, backendtest.Outside) { return s, o }))
	})
	t.Run("NestedStore", func(t *testing.T) {
		backendtest.RunNested(t, harness(c, func(s *redisstore.Store, o outside) (backends.NestedStore, backendtest.NestedOutside) { return s, o }))
	})
}

func harness[S, O any](c contracts, as func(*redisstore.Store, outside) (S, O)) backendtest.HarnessFor[S, O] {
	opts, maxTTL := c.opts, time.Duration(0) // a store as it comes
	if !c.bubble {                           // no machine is too slow for an hour
		opts, maxTTL = append(opts, redisstore.WithMaxTTL(time.Hour)), time.Hour
	}
	return backendtest.HarnessFor[S, O]{
		Clock: true, Bubble: c.bubble, MaxTTL: maxTTL, NoWatch: c.polling,
		New: func(t *testing.T) (S, O) {
			conn := c.connect(t)
			return as(rueidis.New(conn, opts...), outside{t, conn, c.prefix})
		},
	}
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, c := open(t, options(redistest.Start(t).Addr()), redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
	backendtest.Run(t, backendtest.Harness{MaxTTL: time.Hour, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
		return s, outside{t, c, ""}
	}})
}

// options are those that rueidis has by default, but for a cache, of which each connection would have 128 MB.
func options(addrs ...string) client.ClientOption {
	return client.ClientOption{InitAddress: addrs, DisableCache: true}
}

func dial(t testing.TB, addrs ...string) client.Client { return connect(t, options(addrs...)) }

func connect(t testing.TB, o client.ClientOption) client.Client {
	t.Helper()
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t testing.TB, o client.ClientOption, opts ...redisstore.Option) (*redisstore.Store, client.Client) {
	t.Helper()
	s, c, err := rueidis.Open(o, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

// embed makes a client for the present bubble, with a server of its own.
func embed(t *testing.T) client.Client {
	server := embedded.New()
	t.Cleanup(server.Close)
	o := options("127.0.0.1:1")
	o.ForceSingleClient = true
	o.Dialer.KeepAlive, o.ConnWriteTimeout = 10*365*24*time.Hour, time.Second // some sentences take years, without a ping each second
	o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return server.Dial(ctx, "tcp", addr)
	}
	return connect(t, o)
}

// outside works on the plain keys, below the store's prefix.
type outside struct {
	t      *testing.T
	client client.Client
	prefix string
}

func (o outside) Get(key string) (string, time.Duration, bool) {
	left, err := o.do("PTTL", key).AsInt64()
	o.must(err)
	if left == -2 {
		return "", 0, false
	}
	value, err := o.do("GET", key).ToString()
	ttl := max(time.Duration(left)*time.Millisecond, 0)
	switch {
	case client.IsRedisNil(err): // expired in between
		return "", 0, false
	case err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"):
		return "", ttl, true
	}
	o.must(err)
	return value, ttl, true
}

func (o outside) Set(key, value string, ttl time.Duration) {
	args := []string{value}
	if ttl > 0 {
		args = append(args, "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	}
	o.must(o.do("SET", key, args...).Error())
}

func (o outside) SetOther(key string) {
	o.Delete(key)
	o.must(o.do("RPUSH", key, "element").Error())
}

func (o outside) SetNested(key string) {
	o.Delete(key)
	o.must(o.do("HSET", key, "hold:1", "1", "owner", "2").Error())
}

func (o outside) Delete(key string) { o.must(o.do("DEL", key).Error()) }

func (o outside) do(name, key string, args ...string) client.RedisResult {
	return o.client.Do(context.Background(), o.client.B().Arbitrary(name).Keys(o.prefix+key).Args(args...).Build())
}

func (o outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}
