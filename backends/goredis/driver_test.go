package goredis

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var harness = drivertest.Harness{
	Connect: func(t testing.TB, to drivertest.Server) drivertest.Client {
		o := optionsOf(to)
		if !to.Cluster {
			var opts []redisstore.Option
			if to.Quarantine {
				opts = append(opts, Quarantine(o))
			}
			return Driven(Dial(t, o), opts...)
		}
		c := client.NewClusterClient(&client.ClusterOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, PoolSize: o.PoolSize, ReadTimeout: o.ReadTimeout})
		t.Cleanup(func() { c.Close() })
		return Driven(c)
	},
	Open: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
		store, c := Open(optionsOf(to), opts...)
		t.Cleanup(func() { c.Close() })
		return store, func() { c.Close() }
	},
	Protocols: []int{2, 3},
	Nil:       map[string]*redisstore.Store{"nil": New(nil), "a nil pointer": New((*client.Client)(nil))},
	Embedded:  func(t *testing.T) drivertest.Client { return Driven(Embed(t)) },
	Clusters:  true, Repeats: true, OnlyDeadlines: true, Greets: true,
	Denied: []string{"command"}, // see docs/security.md
}

// Dial makes a client that is closed at the end of t.
func Dial(t testing.TB, o *client.Options) *client.Client {
	c := client.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// Embed makes a client for the present bubble, with a server of its own.
func Embed(t *testing.T) *client.Client {
	server := embedded.New()
	t.Cleanup(server.Close)
	return Dial(t, optionsOf(drivertest.Server{Addr: "127.0.0.1:1", Dial: server.Dial}))
}

func optionsOf(to drivertest.Server) *client.Options {
	o := &client.Options{
		Addr: to.Addr, Username: to.User, Password: to.Password, DB: to.Database, TLSConfig: to.TLS, Protocol: to.Protocol,
		ReadTimeout: to.Timeout, ContextTimeoutEnabled: to.Ends, PoolSize: to.Pool,
	}
	if to.Timeout != 0 {
		o.MaxRetries = -1
	}
	if to.Dial != nil { // see embedded.Server.Dial
		o.Dialer, o.PoolSize = to.Dial, 1000
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return o
}

// Driven is c as the suite uses it.
func Driven(c client.UniversalClient, opts ...redisstore.Option) drivertest.Client {
	return drivertest.Client{
		Executor: pipeliner{newExecutor(c), c}, Close: func() { c.Close() },
		New: func(more ...redisstore.Option) *redisstore.Store { return New(c, slices.Concat(opts, more)...) },
	}
}

func TestDriver(t *testing.T) { drivertest.Run(t, harness) }

func FuzzDecoding(f *testing.F) { drivertest.FuzzDecoding(f, harness) }

func TestContractOnRedis(t *testing.T) {
	c := harness.Connect(t, drivertest.Server{Addr: redistest.Start(t).Addr()})
	for _, m := range []drivertest.Mode{drivertest.Plain, drivertest.Scriptless, drivertest.Prefixed.Nightly(), drivertest.Polling.Nightly()} {
		m.Run(t, func(*testing.T) drivertest.Client { return c })
	}
}

// TestContractOnEmbedded is in fake time, where the process never pauses in the middle of a command.
// A prefix and polling do not depend on the server, so they run on Redis only.
func TestContractOnEmbedded(t *testing.T) {
	race.LeaveOut(t)
	for _, m := range []drivertest.Mode{drivertest.Plain, drivertest.Scriptless} {
		m.Bubble, m.Brief = true, true
		m.Run(t, harness.Embedded)
	}
}

// TestContractOnOpen runs through the options that Open sets.
func TestContractOnOpen(t *testing.T) {
	s, c := Open(&client.Options{Addr: redistest.Start(t).Addr()}, redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
	t.Cleanup(func() { c.Close() })
	drivertest.OnOpen(t, s, newExecutor(c))
}
