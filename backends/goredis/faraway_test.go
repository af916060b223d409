package goredis_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// Each renewal and the release need a new connection, and each step of that takes 900 ms.
func TestALockOfAFarServerIsKeptAndReleased(t *testing.T) {
	t.Parallel()
	const unlockLimit = 3 * time.Second // of an Unlock whose ctx cannot end
	trial.WhileBusy(t, unlockLimit, func(t testing.TB, _ time.Duration) {
		server := redistest.Start(t)
		relay := redistest.NewRelay(t, server.Addr())
		var rtt atomic.Int64
		far := func(d time.Duration) {
			rtt.Store(int64(d))
			relay.Delay(d)
			relay.CutAll()
		}
		// The limit of the library for each step, one second without this, would leave a busy machine 100 ms.
		const step = 10 * time.Second
		store, c := goredis.Open(&client.Options{Addr: relay.Addr(), DialTimeout: step, ReadTimeout: step, WriteTimeout: step, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(time.Duration(rtt.Load())) // as a connection to a server that is far away
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}, hour)
		t.Cleanup(func() { c.Close() })
		locks := locker.New(single.New(store))
		warm, err := locks.Lock(t.Context(), "a") // the server knows the scripts from now on
		if err != nil {
			t.Fatal(err)
		}
		if err := warm.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := locks.Lock(t.Context(), "a", locker.WithTTL(24*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		far(900 * time.Millisecond)
		select {
		case <-l.Context().Done():
			t.Errorf("lost: %v", context.Cause(l.Context()))
		case <-time.After(25 * time.Second): // past the end of the lease
		}
		far(300 * time.Millisecond)
		if err := l.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		if reply, err := server.Do("EXISTS", "a"); err != nil || reply != int64(0) {
			t.Errorf("EXISTS = %v, %v; want 0", reply, err)
		}
	})
}
