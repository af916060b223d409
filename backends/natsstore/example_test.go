package natsstore_test

import (
	"context"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/nats-io/nats.go"
)

// The servers have sync_interval: always in their configuration. No client can see it.
func Example() {
	ctx := context.Background()
	conn, err := nats.Connect("nats://n1:4222,nats://n2:4222,nats://n3:4222",
		nats.MaxReconnects(-1),           // or the connection is closed for good after a minute
		nats.PingInterval(2*time.Second)) // finds a server that hangs; the default takes four minutes
	if err != nil {
		log.Fatal(err)
	}
	store := natsstore.New(conn)
	if err := store.Install(ctx, 3); err != nil { // the stream LOCKSTEP with three replicas, if it is not there yet
		log.Fatal(err)
	}
	report, err := store.Check(ctx)
	if err != nil || report.Err() != nil {
		log.Fatal(report, err)
	}
	locks := locker.New(fenced.New(store))
	err = locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		return book(ctx, l.Lease().Fence) // the books refuse a number that is lower than the last one
	})
	if err != nil {
		log.Print(err)
	}
}

func book(ctx context.Context, _ uint64) error { return ctx.Err() }
