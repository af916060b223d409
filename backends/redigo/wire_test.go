package redigo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAURLIsNoAddress(t *testing.T) {
	store, pool := redigo.Open("redis://:S3CRET@localhost:6379", nil)
	defer pool.Close()
	_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
	want := "address redis://:xxxxx@localhost:6379 is a URL, and host:port is needed: " +
		"use redigo.New (Lockstep) with a pool whose DialContext calls redis.DialURLContext (redigo)"
	if err == nil || err.Error() != want {
		t.Errorf("SetNX = %v", err)
	}
	if _, err := pool.GetContext(t.Context()); err == nil || err.Error() != want {
		t.Errorf("GetContext = %v", err)
	}
}

// A pool does not tell where it leads.
func TestErrorsNameTheServerOfAPool(t *testing.T) {
	for name, option := range map[string]func(*client.Pool, string) redisstore.Option{
		"WithAddress": func(_ *client.Pool, addr string) redisstore.Option { return redigo.WithAddress(addr) },
		"Quarantine":  redigo.Quarantine,
	} {
		refused := errors.New("refused")
		pool := &client.Pool{DialContext: func(context.Context) (client.Conn, error) { return nil, refused }}
		store := redigo.New(pool, option(pool, "locks.example:6379"))
		if addr := store.Endpoint(); addr != "locks.example:6379" {
			t.Errorf("%s: Endpoint is %q", name, addr)
		}
		_, err := locker.New(single.New(store)).TryLock(t.Context(), "a")
		want := `lockstep: acquire "a": server locks.example:6379: refused; nothing was sent`
		if err == nil || err.Error() != want || !errors.Is(err, refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPoolThatIsExhaustedHasSentNothing(t *testing.T) {
	server := redistest.Start(t)
	pool := dial(t, server.Addr())
	pool.MaxActive = 1
	c := pool.Get()
	defer c.Close()
	_, err := redigo.New(pool, redigo.WithAddress("db:6379")).SetNX(t.Context(), "a", "token", 20*time.Second)
	want := "server db:6379: the only connection of the pool is in use (redigo: connection pool exhausted): " +
		"give the locks a client of their own, or make the pool larger (MaxActive); nothing was sent"
	if err == nil || err.Error() != want || !backends.Unsent(err) {
		t.Errorf("SetNX = %v", err)
	}
}
