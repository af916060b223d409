package rueidisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// The application has the only connection of the pool, and rueidis waits for it without a ctx. Calls leave when
// their ctxs end. When too many are left that wait, further calls do not begin to wait.
func TestCallsLeaveAPoolThatTheApplicationUsesUp(t *testing.T) {
	server := redistest.Start(t)
	command(t, server, "SET", "a", "other") // what finds it held needs a connection of its own
	o := options(server.Addr())
	o.BlockingPoolSize = 1
	store, c := open(t, o, redisstore.WithoutScripts())
	setNX(t, store, "warm")
	_, release := c.Dedicate()
	exhausted := func(ctx context.Context) {
		_, err := store.SetNX(ctx, "a", "another", 20*time.Second)
		typed, ok := errors.AsType[interface {
			error
			ErrorType() string
		}](err)
		if !ok || typed.ErrorType() != "pool_exhausted" || !backends.Unsent(err) || !strings.Contains(err.Error(), "(BlockingPoolSize)") {
			t.Errorf("SetNX = %v; want pool_exhausted, nothing sent, and what to do", err)
		}
	}
	var calls sync.WaitGroup
	for range 256 {
		calls.Go(func() { exhausted(within(t, time.Second)) })
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		calls.Wait()
		exhausted(t.Context())
	}()
	select {
	case <-left:
	case <-time.After(patience):
		t.Errorf("calls still wait for the pool after %v", patience)
	}
	release()
	<-left
	eventually(t, "the pool serves calls again", func() bool {
		r, err := store.SetNX(t.Context(), "a", "another", 20*time.Second)
		return err == nil && !r.OK
	})
}
