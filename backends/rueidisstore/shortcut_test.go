package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAServerThatForgetsNothingGrantsAgainAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	const quick = time.Second // the longest TTL, so quarantine lasts longer
	store, c, err := rueidisstore.Open(rueidisstore.OptionsOf(drivertest.Server{Addr: server.Addr()}),
		redisstore.WithServerThatForgetsNothing(), redisstore.WithMaxTTL(quick))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	locks := locker.New(single.New(store), locker.WithTTL(quick))
	lock := func() (took time.Duration) {
		t.Helper()
		began := time.Now()
		l, err := locks.Lock(t.Context(), "key", locker.WithWait(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		took = time.Since(began)
		_ = l.Unlock(t.Context()) // on a busy machine the lease may have ended
		return took
	}
	for range 20 { // a busy machine reads the clock of the server too late, and quarantine is not cut short
		lock()
		server.Kill()
		server.Restart()
		if took := lock(); took < quick {
			t.Logf("granted %v after the server was back", took.Round(time.Millisecond))
			return
		}
	}
	t.Error("quarantine was never cut short")
}
