package redigo_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/proof/redistest"
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

func TestAPoolThatIsExhaustedHasSentNothing(t *testing.T) {
	server := redistest.Start(t)
	pool := dial(t, server.Addr())
	pool.MaxActive = 1
	c := pool.Get()
	defer c.Close()
	_, err := redigo.New(pool).SetNX(t.Context(), "a", "token", 20*time.Second)
	want := "the only connection of the pool is in use (redigo: connection pool exhausted): " +
		"give the locks a client of their own, or make the pool larger (MaxActive); nothing was sent"
	if err == nil || err.Error() != want || !backends.Unsent(err) {
		t.Errorf("SetNX = %v", err)
	}
}
