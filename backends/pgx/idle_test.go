package pgx_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgx"
	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A load balancer or NAT forgets connections without a reset. pgx tests those that were idle for a
// second.
func TestIdleConnectionsThatWereForgottenFailNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	port := fmt.Sprint(server.Port())
	relay := redistest.NewRelay(t, "127.0.0.1:"+port)
	_, near, _ := strings.Cut(relay.Addr(), ":")
	dsn := strings.ReplaceAll(server.DSN(), "port="+port, "port="+near) + " pool_max_conns=3"
	store, pool, err := pgx.Open(t.Context(), dsn, pgx.WithMaxTTL(maxTTL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		relay.CutAll() // Close would wait for what is silent
		pool.Close()
	})
	var all []*pgxpool.Conn
	for range 3 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Release()
	}
	time.Sleep(1500 * time.Millisecond)
	if n := relay.Forsake(); n < 3 {
		t.Errorf("%d connections were forgotten; want 3", n)
	}
	locks := locker.New(single.New(store), locker.WithTTL(10*time.Minute), locker.WithoutExtension())
	l, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatalf("Lock = %v", err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}
