package strategies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies"
	"github.com/redis/go-redis/v9"
)

// The configuration names the strategy and the store. The program lists the stores that it knows.
func ExampleNew() {
	server, err := embedded.Start() // in production: a server of yours
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	file := fmt.Sprintf(`{"strategy": "semaphore", "permits": 2, "backend": "redis", "addrs": [%q]}`, server.Addr())

	known := strategies.Backends{
		"redis": func(_ context.Context, addr string) (backends.Store, func() error, error) {
			store, client := goredis.Open(&redis.Options{Addr: addr})
			return store, client.Close, nil
		},
	}
	var config strategies.Config
	if err := json.Unmarshal([]byte(file), &config); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	strategy, closeStores, err := strategies.New(ctx, config, known)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeStores()
	locks := locker.New(strategy)
	err = locks.Do(ctx, "smtp", func(ctx context.Context, l *locker.Lock) error {
		fmt.Println("a permit, and room for", l.Lease().Room)
		return ctx.Err()
	})
	fmt.Println(err)

	config.Backend = "rdis"
	_, _, err = strategies.New(ctx, config, known)
	fmt.Println(err)
	// Output:
	// a permit, and room for 1
	// <nil>
	// lockstep: choose: no backend "rdis": choose one of redis
}
