package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// try takes and releases a lock with a store that has the options.
func try(opts ...redisstore.Option) error {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, opts...)
	defer c.Close()
	return locker.New(single.New(store), locker.WithTTL(20*time.Second)).Do(context.Background(), "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		fmt.Println("keys:", c.Keys(ctx, "*").Val())
		return nil
	})
}

// Locks have a corner of the key space to themselves.
func ExampleWithPrefix() {
	fmt.Println(try(redisstore.WithPrefix("locks:")))
	// Output:
	// keys: [locks:invoice/42]
	// <nil>
}

// A TTL over the limit is an error. All programs that lock on a server need the same limit.
func ExampleWithMaxTTL() {
	fmt.Println(try(redisstore.WithMaxTTL(10 * time.Second)))
	// Output: lockstep: acquire "invoice/42": ttl 20s is over the store's limit of 10s (see redisstore.WithMaxTTL)
}

// The server does not permit scripts.
func ExampleWithoutScripts() {
	fmt.Println(try(redisstore.WithoutScripts()))
	// Output:
	// keys: [invoice/42]
	// <nil>
}

// The server does not permit publish and subscribe.
func ExampleWithoutWakes() {
	fmt.Println(try(redisstore.WithoutWakes()))
	// Output:
	// keys: [invoice/42]
	// <nil>
}

// The server keeps each write on disk and has no replicas. Or it is for tests.
func ExampleWithoutQuarantine() {
	fmt.Println(try(redisstore.WithoutQuarantine()))
	// Output:
	// keys: [invoice/42]
	// <nil>
}

// A server of a quorum that has been up for less than the longest TTL grants nothing.
func ExampleWithQuarantine() {
	store, c := goredis.Open(&client.Options{Addr: "node1.example:6379"}, redisstore.WithQuarantine(time.Minute), redisstore.WithMaxTTL(time.Minute))
	defer c.Close()
	nodes := []backends.Store{store} // and those of four other servers
	_ = nodes
}

// The server has two replicas, and a grant counts when both have it. Here it has none.
func ExampleWithReplicas() {
	err := try(redisstore.WithReplicas(2, 100*time.Millisecond))
	if e, ok := errors.AsType[*redisstore.ReplicasError](err); ok {
		fmt.Printf("%d of %d replicas have the lock\n", e.Acknowledged, e.Needed)
	}
	// Output: 0 of 2 replicas have the lock
}

// The operator says that the server forgets nothing. So a long TTL does not close all locks for as long when
// the server restarts.
func ExampleWithServerThatForgetsNothing() {
	fmt.Println(try(redisstore.WithServerThatForgetsNothing(), redisstore.WithMaxTTL(time.Hour)))
	// Output:
	// keys: [invoice/42]
	// <nil>
}
