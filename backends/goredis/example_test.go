package goredis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// A client of your own keeps its options.
func ExampleNew() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	c := client.NewClient(&client.Options{Addr: server.Addr()})
	defer c.Close()

	locks := locker.New(single.New(goredis.New(c, redisstore.WithPrefix("locks:"))))
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		fmt.Println(c.Keys(ctx, "*").Val())
		return nil
	})
	fmt.Println(err)
	// Output:
	// [locks:invoice/42]
	// <nil>
}

// Open sets the options that locks need, and quarantine.
func ExampleOpen() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redisstore.WithMaxTTL(time.Minute))
	defer c.Close()

	_, err = locker.New(single.New(store)).Lock(context.Background(), "invoice/42", locker.WithTTL(time.Hour))
	fmt.Println(err)
	// Output: lockstep: acquire "invoice/42": ttl 1h0m0s is over the store's limit of 1m0s (see redisstore.WithMaxTTL)
}

// A store on a client of your own has quarantine if the options went through Quarantine before the
// client was made.
func ExampleQuarantine() {
	options := &client.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{"localhost:26379"}}
	quarantine := goredis.Quarantine(options)
	c := client.NewFailoverClient(options)
	defer c.Close()
	locks := locker.New(single.New(goredis.New(c, quarantine)))
	_ = locks
}
