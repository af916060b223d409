package etcd_test

import (
	"context"
	"errors"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

// Locks in a cluster of three members.
func Example() {
	if err := run(context.Background()); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context) error {
	store, client, err := etcd.Open(clientv3.Config{
		Endpoints: []string{"https://a.example:2379", "https://b.example:2379", "https://c.example:2379"},
		Username:  "app", Password: "secret",
	})
	if err != nil {
		return err
	}
	defer client.Close()
	report, err := store.Check(ctx)
	if err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return err
	}
	locks := locker.New(fenced.New(store))
	return locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		return charge(ctx, l.Fence())
	})
}

func charge(ctx context.Context, number uint64) error { return ctx.Err() }

// A holder whose lease has ended must not write behind the next one.
func Example_guard() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://a.example:2379"}})
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()
	switch err := pay(context.Background(), client); {
	case errors.Is(err, locker.ErrLost):
		log.Print("the lease ended before the write: nothing was written")
	case err != nil:
		log.Print(err)
	}
}

func pay(ctx context.Context, client *clientv3.Client) error {
	store := etcd.New(client)
	locks := locker.New(fenced.New(store))
	return locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		r, err := client.Txn(ctx).If(store.Guard(l.Lease())).Then(clientv3.OpPut("invoice/42", "paid")).Commit()
		if err == nil && !r.Succeeded {
			err = locker.ErrLost
		}
		return err
	})
}
