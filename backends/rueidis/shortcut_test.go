package rueidis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAServerThatForgetsNothingGrantsAgainAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	store, c, err := rueidis.Open(rueidis.OptionsOf(drivertest.Server{Addr: server.Addr()}), redisstore.WithServerThatForgetsNothing())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	locks := locker.New(single.New(store))
	lock := func() {
		t.Helper()
		l, err := locks.Lock(t.Context(), "key", locker.WithWait(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	lock()
	server.Kill()
	server.Restart()
	lock()
}
