package redigo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A pool of your own keeps its options. It should give up a server that hangs, and test what was idle.
func ExampleNew() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	pool := &client.Pool{
		DialContext: func(ctx context.Context) (client.Conn, error) {
			return client.DialContext(ctx, "tcp", server.Addr(), client.DialReadTimeout(time.Second))
		},
		TestOnBorrowContext: redigo.TestOnBorrow(),
		MaxIdle:             10,
	}
	defer pool.Close()

	locks := locker.New(single.New(redigo.New(pool, redigo.WithAddress(server.Addr()), redisstore.WithPrefix("locks:"))))
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		c, err := pool.GetContext(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		keys, err := client.Strings(c.Do("KEYS", "*"))
		fmt.Println(keys)
		return err
	})
	fmt.Println(err)
	// Output:
	// [locks:invoice/42]
	// <nil>
}

// Open makes a pool with the options that locks need, and quarantine.
func ExampleOpen() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, pool := redigo.Open(server.Addr(), []client.DialOption{client.DialDatabase(1)}, redisstore.WithMaxTTL(time.Minute))
	defer pool.Close()

	_, err = locker.New(single.New(store)).Lock(context.Background(), "invoice/42", locker.WithTTL(time.Hour))
	fmt.Println(err)
	// Output: lockstep: acquire "invoice/42": ttl 1h0m0s is over the store's limit of 1m0s (see redisstore.WithMaxTTL)
}

// A store on a pool of your own has quarantine if the pool went through Quarantine before it was used.
func ExampleQuarantine() {
	pool := &client.Pool{
		DialContext: func(ctx context.Context) (client.Conn, error) {
			return client.DialContext(ctx, "tcp", "localhost:6379")
		},
	}
	defer pool.Close()
	quarantine := redigo.Quarantine(pool, "localhost:6379")
	locks := locker.New(single.New(redigo.New(pool, quarantine)))
	_ = locks
}
