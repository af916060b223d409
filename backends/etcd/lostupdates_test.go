package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/counting"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var increments = flag.Int("increments", 300, "how many increments of the counter to make")

// Processes that are stopped for longer than their lease increment a counter in the cluster of the
// locks: they read it, and write the next number in a transaction with Guard, or without it.
func TestAGuardedCounterLosesNoIncrement(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(map[bool]string{true: "guarded", false: "unguarded"}[guarded], func(t *testing.T) {
			t.Parallel()
			c := etcdtest.Start(t, 1, etcdtest.Fast)
			client := dial(t, c.Endpoints())
			where := counting.Where{Store: "etcd", Module: "backends/etcd", Lease: 2*time.Second + resolution/2}
			counting.Run(t, where, guarded, *increments, func() int {
				n, err := counted(t.Context(), client)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}, "ETCD_COUNTER="+strings.Join(c.Endpoints(), " "), fmt.Sprintf("ETCD_GUARDED=%v", guarded))
		})
	}
}

// counted reads the counter, which begins with 0.
func counted(ctx context.Context, client *clientv3.Client) (int, error) {
	r, err := client.Get(ctx, "counter")
	if err != nil || len(r.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(r.Kvs[0].Value))
}

// TestProcess is a process that counts, or a rival of a campaign.
func TestProcess(t *testing.T) {
	if rivals.Process(t, openFor) {
		return
	}
	endpoints := os.Getenv("ETCD_COUNTER")
	if endpoints == "" {
		t.Skip("it is for TestAGuardedCounterLosesNoIncrement and the campaigns")
	}
	client := dial(t, strings.Fields(endpoints))
	store := etcd.New(client)
	locks := locker.New(single.New(store), locker.WithTTL(counting.TTL))
	guarded, _ := strconv.ParseBool(os.Getenv("ETCD_GUARDED"))
	counting.Process(t, func(ctx context.Context, told func()) error {
		return locks.Do(ctx, "counter", func(_ context.Context, l *locker.Lock) error {
			var guard []clientv3.Cmp
			if guarded {
				guard = append(guard, store.Guard(l.Lease()))
			}
			return increment(t.Context(), client, guard, told)
		})
	})
}

// increment reads, works for a moment and writes. A transaction whose outcome is unknown would be
// counted wrongly, so it ends the test.
func increment(ctx context.Context, client *clientv3.Client, guard []clientv3.Cmp, told func()) error {
	n, err := counted(ctx, client)
	if err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond) // the work
	r, err := client.Txn(ctx).If(guard...).Then(clientv3.OpPut("counter", strconv.Itoa(n+1))).Commit()
	if err != nil {
		panic(err) // whether it was counted is unknown
	}
	if r.Succeeded {
		told()
	}
	return nil
}
