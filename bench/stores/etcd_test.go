package stores

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// etcds starts one member that keeps each change on disk.
func etcds(tb testing.TB) (dial func(opts ...grpc.DialOption) *clientv3.Client) {
	tb.Helper()
	c := etcdtest.Start(tb, 1)
	return func(opts ...grpc.DialOption) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialOptions: opts})
		must(tb, err)
		tb.Cleanup(func() { _ = client.Close() })
		return client
	}
}

// BenchmarkEtcdPair is BenchmarkPostgreSQLPair for etcd.
func BenchmarkEtcdPair(b *testing.B) {
	client := etcds(b)()
	store := etcd.New(client)
	session, err := concurrency.NewSession(client)
	must(b, err)
	defer session.Close()
	mutex := concurrency.NewMutex(session, "mutex")
	measure(b, []contender{
		{"put+delete", func(ctx context.Context) error {
			_, err := client.Put(ctx, "raw", "value")
			if err == nil {
				_, err = client.Delete(ctx, "raw")
			}
			return err
		}},
		{"get-twice", func(ctx context.Context) error {
			_, err := client.Get(ctx, "raw")
			if err == nil {
				_, err = client.Get(ctx, "raw")
			}
			return err
		}},
		{"grant+put+delete", func(ctx context.Context) error { // what it would cost without spare leases
			lease, err := client.Grant(ctx, 10)
			if err == nil {
				_, err = client.Put(ctx, "raw", "value", clientv3.WithLease(lease.ID))
			}
			if err == nil {
				_, err = client.Delete(ctx, "raw")
			}
			return err
		}},
		{"store", func(ctx context.Context) error {
			if r, err := store.SetNX(ctx, "stored", "token", 10*time.Second); err != nil || !r.OK {
				return fmt.Errorf("%+v, %w", r, err)
			}
			_, err := store.DeleteIf(ctx, "stored", "token")
			return err
		}},
		{"single", throughClient(single.New(store))},
		{"fenced", throughClient(fenced.New(store))},
		{"semaphore", throughClient(semaphore.New(etcd.New(client, etcd.WithPrefix("shared/")), 5))},
		{"concurrency-mutex", func(ctx context.Context) error {
			if err := mutex.Lock(ctx); err != nil {
				return err
			}
			return mutex.Unlock(ctx)
		}},
	})
}

// BenchmarkEtcdRefused: an attempt that finds the lock held, with the changes that it makes.
func BenchmarkEtcdRefused(b *testing.B) {
	client := etcds(b)()
	store := etcd.New(client)
	r, err := store.SetNX(b.Context(), "key", "holder", 30*time.Second)
	if err != nil || !r.OK {
		b.Fatal(r, err)
	}
	before := revision(b, client)
	for b.Loop() {
		if r, err := store.SetNX(b.Context(), "key", "token", time.Second); err != nil || r.OK {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(revision(b, client)-before), "changes")
}

func revision(tb testing.TB, client *clientv3.Client) int64 {
	tb.Helper()
	r, err := client.Get(context.Background(), "any")
	must(tb, err)
	return r.Header.Revision
}

// BenchmarkEtcdHandover is BenchmarkPostgreSQLHandover for etcd.
func BenchmarkEtcdHandover(b *testing.B) {
	for _, waiters := range []int{1, 100} {
		for _, strategy := range []string{"single", "concurrency-mutex"} {
			b.Run(fmt.Sprintf("%s/%d", strategy, waiters), func(b *testing.B) {
				dial := etcds(b)
				takeTurns(b, waiters+1, func() func(context.Context) error {
					client := dial()
					if strategy == "single" {
						return throughClient(single.New(etcd.New(client)))
					}
					session, err := concurrency.NewSession(client)
					must(b, err)
					mutex := concurrency.NewMutex(session, "mutex")
					return func(ctx context.Context) error {
						err := mutex.Lock(ctx)
						if err == nil {
							err = mutex.Unlock(ctx)
						}
						return err
					}
				})
			})
		}
	}
}

// BenchmarkEtcdIdleWaiters is BenchmarkPostgreSQLIdleWaiters for etcd, with the calls that it takes.
func BenchmarkEtcdIdleWaiters(b *testing.B) {
	dial := etcds(b)
	holder := etcd.New(dial(), etcd.WithMaxTTL(time.Hour))
	for i := range 100 {
		if r, err := holder.SetNX(b.Context(), fmt.Sprint(i), "holder", 10*time.Minute); err != nil || !r.OK {
			b.Fatal(r, err)
		}
	}
	var calls atomic.Int64
	count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasPrefix(method, "/etcdserverpb.") {
			calls.Add(1)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range 10 {
		locks := locker.New(single.New(etcd.New(dial(count))))
		for i := range 100 {
			all.Go(func() { _, _ = locks.Lock(ctx, fmt.Sprint(i)) })
		}
	}
	for b.Loop() { // once: time passes
		time.Sleep(5 * time.Second)
		began, before := time.Now(), calls.Load()
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(calls.Load()-before)/time.Since(began).Seconds(), "calls/s")
	}
	cancel()
	all.Wait()
}
