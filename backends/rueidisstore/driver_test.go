package rueidisstore

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

var harness = drivertest.Harness{
	Connect: func(t testing.TB, to drivertest.Server) drivertest.Client {
		o := OptionsOf(to)
		o.ForceSingleClient = !to.Cluster // and no error if the server can't be reached
		c, err := client.NewClient(o)
		if c == nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return Driven(c)
	},
	Open: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
		o := OptionsOf(to)
		o.Dialer.KeepAlive = to.Timeout
		store, c, err := Open(o, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return store, c.Close
	},
	Embedded:  Embed,
	Protocols: []int{2, 3},
	Clusters:  true,
	Shares:    true,
	Nil:       map[string]*redisstore.Store{"nil": New(nil)},
	Lags:      20,
	Denied:    []string{"punsubscribe", "sunsubscribe", "discard"},
	Needs:     map[string][]string{"single-cluster": {"+cluster|shards"}}, // see TestRueidisAsksNewerClustersForShards
}

// OptionsOf are those that rueidis has by default, but for a cache, which would take 128 MB for each
// connection.
func OptionsOf(to drivertest.Server) client.ClientOption {
	o := client.ClientOption{
		InitAddress: []string{to.Addr}, DisableCache: true, Username: to.User, Password: to.Password, SelectDB: to.Database,
		TLSConfig: to.TLS, AlwaysRESP2: to.Protocol == 2, ConnWriteTimeout: to.Timeout, Dialer: net.Dialer{Timeout: to.Timeout},
		BlockingPoolSize: to.Pool,
	}
	if to.Protocol != 0 {
		o.Dialer.KeepAlive, o.ConnWriteTimeout = time.Hour, time.Minute // no pings in between
	}
	if to.Dial != nil { // some sentences take years, without a ping each second
		o.Dialer.KeepAlive, o.ConnWriteTimeout = 10*365*24*time.Hour, time.Second
		o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return to.Dial(ctx, "tcp", addr)
		}
	}
	return o
}

// Driven is c as the suite uses it.
func Driven(c client.Client) drivertest.Client {
	var e driver.Executor = newExecutor(c)
	if own := newExecutor(c); !own.cluster {
		e = pipeliner{own}
	}
	return drivertest.Client{Executor: e, Close: c.Close, New: func(opts ...redisstore.Option) *redisstore.Store { return New(c, opts...) }}
}

func TestDriver(t *testing.T) { drivertest.Run(t, harness) }

func FuzzDecoding(f *testing.F) { drivertest.FuzzDecoding(f, harness) }

func TestContractOnRedis(t *testing.T) {
	c := harness.Connect(t, drivertest.Server{Addr: redistest.Start(t).Addr()})
	for _, m := range []drivertest.Mode{drivertest.Plain, drivertest.Scriptless.Nightly(), drivertest.Prefixed.Nightly(), drivertest.Polling.Nightly()} {
		m.Run(t, func(*testing.T) drivertest.Client { return c })
	}
}

func TestContractInRESP2(t *testing.T) {
	o := OptionsOf(drivertest.Server{Addr: redistest.Start(t).Addr()})
	o.AlwaysRESP2 = true
	runContracts(t, o)
}

// runContracts runs the modes whose commands are not the same. For each change it runs only the contract of a
// Store; TestContractOnRedis runs the others of Plain then, too.
func runContracts(t *testing.T, o client.ClientOption) client.Client {
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, m := range []drivertest.Mode{drivertest.Plain, drivertest.Scriptless.Nightly()} {
		m.Brief = true
		m.Run(t, func(*testing.T) drivertest.Client { return Driven(c) })
	}
	return c
}

// TestContractOnEmbedded is in fake time, where nothing may be left behind when a sentence ends.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	m := drivertest.Plain
	m.Bubble, m.Brief = true, true
	m.Run(t, Embed)
}

// Embed makes a client for the present bubble, with a server of its own.
func Embed(t *testing.T) drivertest.Client {
	server := embedded.New()
	t.Cleanup(server.Close)
	o := OptionsOf(drivertest.Server{Addr: "127.0.0.1:1", Dial: server.Dial})
	o.ForceSingleClient = true
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return Driven(c)
}

func TestContractThroughACluster(t *testing.T) {
	t.Parallel()
	o := OptionsOf(drivertest.Server{})
	o.InitAddress = redistest.StartCluster(t, 3, 0).Addrs()
	if mode := runContracts(t, o).Mode(); mode != client.ClientModeCluster {
		t.Errorf("mode %v", mode)
	}
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, c, err := Open(OptionsOf(drivertest.Server{Addr: redistest.Start(t).Addr()}), redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	drivertest.OnOpen(t, s, newExecutor(c))
}
