// Package beneath has the stores for the tests of strategies, and ways to reach the data past the
// strategy.
package beneath

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Store has the methods that strategies need.
type Store interface {
	backends.NumberedStore
	backends.FencedStore
	backends.OrderedStore
	backends.QueuedStore
}

// Over makes a strategy over a store, with faults in between.
type Over func(store Store, outside Outside) (locker.Locker, lockertest.Disturber)

// MaxTTL is the limit of stores in real time and in a strategy's own tests, so that a lease
// outlives a test on a slow machine. The contract in fake time uses stores with their default
// limit.
const MaxTTL = time.Hour

// Contract runs the contract of a Locker on a row of the table, on every store. Of the stores in real
// time it runs on redis-server through go-redis, and in full size on all of them: memory says in real
// time what it says in fake time, and the suites of package drivertest have shown that the client
// libraries do the same.
func Contract(t *testing.T, strategy string) {
	r := table.Named(strategy)
	Run(t, harness(r), over(r))
}

// ContractThroughAllClients is Contract through all client libraries of this module. It is for
// strategies that together use all kinds of commands.
func ContractThroughAllClients(t *testing.T, strategy string) {
	r := table.Named(strategy)
	run(t, harness(r), over(r), "redis by go-redis", "redis by redigo")
}

// ContractOn runs the contract in fake time on stores of one kind, which may lack what [Store] has.
func ContractOn(t *testing.T, strategy string, kind table.Kind, start Start) {
	r := table.Named(strategy)
	h := harness(r)
	h.New, h.Bubble = start.with(overKind(r, kind)), true
	lockertest.Run(t, h)
}

// Run is Contract for a strategy that is no row of the table as it is; h says what it does not promise.
func Run(t *testing.T, h lockertest.Harness, over Over) { run(t, h, over, "redis by go-redis") }

func run(t *testing.T, h lockertest.Harness, over Over, always ...string) {
	for name, start := range map[string]Start{"memory": Memory, "embedded": Embedded} {
		t.Run(name+" in fake time", func(t *testing.T) {
			if name == "embedded" {
				race.LeaveOut(t)
			}
			h := h
			h.New, h.Bubble = start.with(over), true
			lockertest.Run(t, h)
		})
	}
	t.Run("memory in fake time, with handover", func(t *testing.T) {
		h := h
		h.New, h.Bubble, h.Options = Start(Memory).with(over), true, append(slices.Clip(h.Options), locker.WithMaxHandovers(2))
		lockertest.Run(t, h)
	})
	for name, on := range inRealTime {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(always, name) {
				full.Only(t)
			}
			t.Parallel()
			h := h
			h.New, h.Bubble, h.MaxTTL = on(t).with(over), false, MaxTTL
			lockertest.Run(t, h)
		})
	}
}

// A Test is a test of one strategy.
type Test func(t *testing.T, store Store, outside Outside)

// Each runs a test on every store, in fake time where possible. Through redigo it runs in full size only.
func Each(t *testing.T, test Test) {
	InFakeTime(t, test)
	for name, on := range inRealTime {
		if name != "memory" {
			t.Run(name, func(t *testing.T) {
				if name == "redis by redigo" {
					full.Only(t)
				}
				store, outside := on(t)(t)
				test(t, store, outside)
			})
		}
	}
}

// InFakeTime runs a test in bubbles of testing/synctest.
func InFakeTime(t *testing.T, test Test) {
	for name, start := range map[string]Start{"memory": LongMemory, "embedded": longEmbedded} {
		t.Run(name+" in fake time", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, outside := start(t)
				test(t, store, outside)
				// a Client keeps its subscription for a moment after its last lock
				time.Sleep(time.Second)
			})
		})
	}
}

var inRealTime = map[string]func(t *testing.T) Start{
	"memory":            func(*testing.T) Start { return LongMemory },
	"redis by go-redis": GoRedis,
	"redis by redigo":   Redigo,
}

// A Start gives a store for one test.
type Start func(t *testing.T) (Store, Outside)

func (start Start) with(over Over) func(t *testing.T) (locker.Locker, lockertest.Disturber) {
	return func(t *testing.T) (locker.Locker, lockertest.Disturber) { return over(start(t)) }
}

// Memory is a new store in memory.
func Memory(t *testing.T) (Store, Outside) { return inMemory(t) }

// LongMemory is Memory with the limit [MaxTTL].
func LongMemory(t *testing.T) (Store, Outside) { return inMemory(t, memory.WithMaxTTL(MaxTTL)) }

func inMemory(t *testing.T, opts ...memory.Option) (Store, Outside) {
	store := memory.New(opts...)
	return store, mapped{store, t}
}

// Embedded is a new miniredis, for a bubble of testing/synctest, through go-redis.
func Embedded(t *testing.T) (Store, Outside) { return onEmbedded(t) }

func longEmbedded(t *testing.T) (Store, Outside) { return onEmbedded(t, Long) }

func onEmbedded(t *testing.T, opts ...redisstore.Option) (Store, Outside) {
	_, client := embed(t)
	return goredis.New(client, opts...), keys{t, client}
}

// Long gives a store of the Redis family the limit [MaxTTL].
var Long = redisstore.WithMaxTTL(MaxTTL)

// EmbeddedRedigo is Embedded through redigo.
func EmbeddedRedigo(t *testing.T) (Store, Outside) {
	server, client := embed(t)
	return redigo.New(pool(t, "127.0.0.1:1", redigolib.DialContextFunc(server.Dial))), keys{t, client}
}

func embed(t *testing.T) (*embedded.Server, *redis.Client) {
	server := embedded.New()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return server, client
}

// GoRedis starts one redis-server for all stores, through go-redis.
func GoRedis(t *testing.T) Start {
	client := dial(t, redistest.Start(t))
	return func(t *testing.T) (Store, Outside) { return goredis.New(client, Long), keys{t, client} }
}

// Redigo is GoRedis through redigo.
func Redigo(t *testing.T) Start {
	server := redistest.Start(t)
	client := dial(t, server) // for the outside
	pool := pool(t, server.Addr())
	return func(t *testing.T) (Store, Outside) { return redigo.New(pool, Long), keys{t, client} }
}

func pool(t *testing.T, addr string, opts ...redigolib.DialOption) *redigolib.Pool {
	p := &redigolib.Pool{
		MaxIdle: 100,
		DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", addr, opts...)
		},
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, server *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 100})
	t.Cleanup(func() { client.Close() })
	return client
}
