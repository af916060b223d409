package rueidisstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/rueidis"
)

// A client of your own keeps its options. It should give up a server that hangs sooner than rueidis
// does by itself.
func ExampleNew() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	c, err := client.NewClient(client.ClientOption{
		InitAddress:      []string{server.Addr()},
		ConnWriteTimeout: time.Second,
		DisableCache:     true, // this server does not have what it needs
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	locks := locker.New(single.New(rueidisstore.New(c, redisstore.WithPrefix("locks:"))))
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		keys, err := c.Do(ctx, c.B().Keys().Pattern("*").Build()).AsStrSlice()
		fmt.Println(keys)
		return err
	})
	fmt.Println(err)
	// Output:
	// [locks:invoice/42]
	// <nil>
}

// Open makes a client with the options that locks need, and quarantine.
func ExampleOpen() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, c, err := rueidisstore.Open(client.ClientOption{InitAddress: []string{server.Addr()}}, redisstore.WithMaxTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	_, err = locker.New(single.New(store)).Lock(context.Background(), "invoice/42", locker.WithTTL(time.Hour))
	fmt.Println(err)
	// Output: lockstep: acquire "invoice/42": ttl 1h0m0s is over the store's limit of 1m0s (see redisstore.WithMaxTTL)
}

// A store on a client of your own, here one for a cluster, has quarantine if its options went
// through Quarantine.
func ExampleQuarantine() {
	o := client.ClientOption{InitAddress: []string{"node1:6379", "node2:6379", "node3:6379"}, Password: "secret"}
	quarantine := rueidisstore.Quarantine(&o)
	c, err := client.NewClient(o)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	locks := locker.New(single.New(rueidisstore.New(c, quarantine)))
	_ = locks
}
