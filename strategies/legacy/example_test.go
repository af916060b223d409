package legacy_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/redis/go-redis/v9"
)

// New code shares a lock with old code that stores a time stamp with SETNX: each finds the lock of the
// other held.
func ExampleGetSet() {
	ctx := context.Background()
	server, err := embedded.Start() // in production: the server of the old code
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, client := goredis.Open(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locks := locker.New(legacy.GetSet(store))
	oldCode := func() (bool, error) {
		stamp := time.Now().Add(10 * time.Second).Unix()
		return client.SetNX(ctx, "invoice/42", stamp, 0).Result()
	}

	err = locks.Do(ctx, "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		got, err := oldCode()
		fmt.Println("the old code has the lock:", got)
		return err
	})
	fmt.Println(err)

	got, err := oldCode()
	fmt.Println("the old code has the lock:", got, err)
	_, err = locks.TryLock(ctx, "invoice/42")
	fmt.Println("for the new code it is held:", errors.Is(err, locker.ErrHeld))
	// Output:
	// the old code has the lock: false
	// <nil>
	// the old code has the lock: true <nil>
	// for the new code it is held: true
}
