// Package drivertest is the contract of an adapter as a suite: what a driver.Executor promises to
// the Redis family, and what a store over it shows. It needs redis-server.
package drivertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// Server is what a client connects to.
type Server struct{ Addr, User, Password string }

// Harness makes what is tested. Its functions close what they open at the end of t.
type Harness struct {
	// Store is New of the adapter, with a client of its own.
	Store func(t *testing.T, to Server, opts ...redisstore.Option) *redisstore.Store
	// Executors are those of clients of their own, by a name such as that of a protocol.
	Executors map[string]func(t *testing.T, to Server) driver.Executor
	// Nil are stores that New made without a client.
	Nil map[string]*redisstore.Store
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range stores {
		t.Run(c.sentence, func(t *testing.T) { c.test(t, h) })
	}
	for _, c := range executors {
		t.Run(c.sentence, func(t *testing.T) {
			for name, open := range h.Executors {
				t.Run(name, func(t *testing.T) { c.test(t, open) })
			}
		})
	}
}

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
func do(t *testing.T, server *redistest.Server, args ...string) any {
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
