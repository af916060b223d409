package redigo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestQuarantineSeesThePoolThatDialsWithoutACtx: Dial of a pool is as good as its DialContext.
func TestQuarantineSeesThePoolThatDialsWithoutACtx(t *testing.T) {
	server := redistest.Start(t)
	pool := &client.Pool{MaxIdle: 1, Dial: func() (client.Conn, error) { return client.Dial("tcp", server.Addr()) }}
	defer pool.Close()
	store := redigo.New(pool, redigo.Quarantine(pool, server.Addr()))
	setNX(t, store, "a")
	server.Kill()
	server.Restart()
	refused := (*redisstore.QuarantineError)(nil)
	for deadline := time.Now().Add(20 * time.Second); ; {
		r, err := store.SetNX(t.Context(), "b", "token", 20*time.Second)
		if errors.As(err, &refused) {
			break
		}
		if r.OK || time.Now().After(deadline) {
			t.Fatalf("SetNX after a restart = %+v, %v", r, err)
		}
	}
	if refused.Address != server.Addr() {
		t.Errorf("the error names %q", refused.Address)
	}
}

func TestQuarantineOfAPoolThatCannotDialIsAnErrorOfEveryCall(t *testing.T) {
	pool := new(client.Pool)
	store := redigo.New(pool, redigo.Quarantine(pool, "localhost:6379"))
	_, err := store.SetNX(t.Context(), "a", "token", time.Second)
	if err == nil || !strings.Contains(err.Error(), "the pool has neither Dial nor DialContext") {
		t.Errorf("SetNX = %v", err)
	}
}

// TestAConnectionThatQuarantineSeesDoesAllThatRedigosDoes: applications take connections of the same pool.
func TestAConnectionThatQuarantineSeesDoesAllThatRedigosDoes(t *testing.T) {
	_, pool := redigo.Open(redistest.Start(t).Addr(), nil)
	defer pool.Close()
	for name, ping := range map[string]func(ctx context.Context, c client.Conn) (any, error){
		"Do":        func(_ context.Context, c client.Conn) (any, error) { return c.Do("PING") },
		"DoContext": func(ctx context.Context, c client.Conn) (any, error) { return client.DoContext(c, ctx, "PING") },
		"DoWithTimeout": func(_ context.Context, c client.Conn) (any, error) {
			return client.DoWithTimeout(c, time.Minute, "PING")
		},
		"ReceiveContext": func(ctx context.Context, c client.Conn) (any, error) {
			return sent(c, func() (any, error) { return client.ReceiveContext(c, ctx) })
		},
		"ReceiveWithTimeout": func(_ context.Context, c client.Conn) (any, error) {
			return sent(c, func() (any, error) { return client.ReceiveWithTimeout(c, time.Minute) })
		},
	} {
		c, err := pool.GetContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := client.String(ping(t.Context(), c)); reply != "PONG" || err != nil {
			t.Errorf("%s = %q, %v", name, reply, err)
		}
		c.Close()
	}
}

// sent receives the reply to a PING.
func sent(c client.Conn, receive func() (any, error)) (any, error) {
	if err := errors.Join(c.Send("PING"), c.Flush()); err != nil {
		return nil, err
	}
	return receive()
}
