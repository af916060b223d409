// Package drivertest is the contract of an adapter as a suite: what a driver.Executor promises to
// the Redis family, and what a store over it shows. It needs redis-server.
package drivertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// Server is what a client connects to.
type Server struct {
	Addr, User, Password string

	Database int
	TLS      *tls.Config
	Timeout  time.Duration // of a call, which is not repeated; 0: that of the client library
	Cluster  bool          // it is a node of a cluster
	Ends     bool          // calls end with their ctx, if the client library has an option for it
	Protocol int           // 2 or 3 for a RESP2 or RESP3 connection; 0: that of the client library
	Pool     int           // connections for commands, and more calls wait for one; 0: as the client library has it

	Quarantine bool // stores on the client have it

	// Dial opens the connections, whatever the address; nil: by TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is one client of the client library.
type Client struct {
	Executor driver.Executor
	New      func(opts ...redisstore.Option) *redisstore.Store // New of the adapter
	Close    func()
}

// Harness makes what is tested. Its functions close what they open at the end of t, if the test has
// not done it.
type Harness struct {
	// Connect makes a client. It fails t if the client library has no client for the server.
	Connect func(t testing.TB, to Server) Client
	// Open is Open of the adapter, and closes the client.
	Open func(t *testing.T, to Server, opts ...redisstore.Option) (store *redisstore.Store, closes func())

	// Embedded makes a client in a testing/synctest bubble, with a server of its own there.
	Embedded func(t *testing.T) Client

	// Protocols that the client library speaks; none: 2.
	Protocols []int
	// Nil are stores that New made without a client, by name.
	Nil map[string]*redisstore.Store

	// Clusters says that Connect has clients of a cluster.
	Clusters bool
	// NoPipeline says that the Executor is no driver.Pipeliner, since the client library can't send
	// several commands in one round trip.
	NoPipeline bool
	// Repeats says that the client library sends again what may be sent twice.
	Repeats bool
	// OnlyDeadlines says that a ctx that is cancelled ends no call that waits for a reply.
	OnlyDeadlines bool
	// Shares says that all calls share a connection, where a lost reply holds up those behind it.
	Shares bool
	// Greets says that the client library sends a command on a new connection before the call, and
	// tells whether it was answered.
	Greets bool
	// Lags is how many calls may fail after a switchover until the client library sees it.
	Lags int
	// Denied are commands that the client library sends by itself and can do without, in the words
	// of ACL LOG.
	Denied []string
	// Needs are permissions that the client library needs besides those of a user of docs/security.md,
	// by user.
	Needs map[string][]string
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	together, alsoTogether := pipelinedStores, pipeliners
	if h.NoPipeline {
		together, alsoTogether = nil, nil
	}
	for _, s := range slices.Concat(stores, faulty, together) {
		t.Run(s.says, func(t *testing.T) { s.test(t, h) })
	}
	for _, s := range patient {
		t.Run(s.says, func(t *testing.T) {
			t.Parallel()
			s.test(t, h)
		})
	}
	if len(h.Protocols) == 0 {
		h.Protocols = []int{2}
	}
	for _, s := range slices.Concat(executors, alsoTogether) {
		t.Run(s.says, func(t *testing.T) {
			for _, protocol := range h.Protocols {
				t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
					s.test(t, func(t *testing.T, to Server) driver.Executor {
						to.Protocol, to.Ends = protocol, true
						return h.Connect(t, to).Executor
					})
				})
			}
		})
	}
}

// store is New of the adapter, with a client of its own.
func (h Harness) store(t *testing.T, to Server, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	return h.Connect(t, to).New(opts...)
}

// open is Open of the adapter, without quarantine.
func (h Harness) open(t *testing.T, to Server, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, _ := h.Open(t, to, append(opts, redisstore.WithoutQuarantine())...)
	return store
}

// patience is how long a test waits for what must happen on any machine.
var patience = 20 * time.Second

func eventually(t testing.TB, what string, holds func() bool) {
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

func watch(ctx context.Context, t *testing.T, store *redisstore.Store, key string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 100)
	if err := store.Watch(ctx, key, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	return woken
}

func acquire(t *testing.T, store *redisstore.Store, key string) {
	t.Helper()
	if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
}

func release(t *testing.T, store *redisstore.Store, key string) {
	t.Helper()
	if ok, err := store.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
		t.Fatal(ok, err)
	}
}

// do sends a command past the adapter.
func do(t testing.TB, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// channels are the names of the channels that somebody is subscribed to.
func channels(t *testing.T, server *redistest.Server) string {
	var names []string
	for _, name := range do(t, server, "PUBSUB", "CHANNELS").([]any) {
		names = append(names, name.(string))
	}
	return strings.Join(names, " ")
}

// subscribers counts connections that are subscribed to something.
func subscribers(t *testing.T, server *redistest.Server) int {
	return strings.Count(do(t, server, "CLIENT", "LIST", "TYPE", "pubsub").(string), "id=")
}
