package redigo_test

import (
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/internal/verify/wiretest"
)

func openPlain(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
	return redigo.New(dial(t, addr), append(opts, redisstore.WithMaxTTL(time.Hour))...)
}

func TestLocksOutliveASwitchoverThatKeepsTheConnections(t *testing.T) {
	t.Parallel()
	wiretest.Switchover(t, openPlain, 0)
}

func TestEachErrorReplyToEachCommandIsOfTheRightClass(t *testing.T) {
	t.Parallel()
	wiretest.ErrorReplies(t, openPlain)
}

func TestErrorsSayWhichServerWhatOutcomeAndWhatToDo(t *testing.T) {
	t.Parallel()
	wiretest.Messages(t, func(t *testing.T, to wiretest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
		dial := []client.DialOption{client.DialPassword(to.Password), client.DialDatabase(to.Database)}
		if to.Encrypt != nil {
			dial = append(dial, client.DialUseTLS(true), client.DialTLSConfig(to.Encrypt))
		}
		if to.Timeout != 0 {
			dial = append(dial, client.DialReadTimeout(to.Timeout))
		}
		store, pool := redigo.Open(to.Addr, dial, opts...)
		t.Cleanup(func() { pool.Close() })
		return store, func() { pool.Close() }
	}, false)
}

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
	if want := "redigo: connection pool exhausted; nothing was sent"; err == nil || err.Error() != want || !cleanup.Unsent(err) {
		t.Errorf("SetNX = %v", err)
	}
}
