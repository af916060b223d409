package rueidisstore_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
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
	var told, full atomic.Bool
	call := func() {
		_, err := store.SetNX(within(t, time.Second), "a", "another", 20*time.Second)
		typed, ok := errors.AsType[interface {
			error
			ErrorType() string
		}](err)
		if !ok || typed.ErrorType() != "pool_exhausted" { // a slow machine let the ctx end before the wait
			return
		}
		if !backends.Unsent(err) || !strings.Contains(err.Error(), "(BlockingPoolSize)") {
			t.Errorf("SetNX = %v; want that nothing was sent, and what to do", err)
		}
		told.Store(true)
		if errors.Is(err, driver.ErrLeft) {
			full.Store(true)
		}
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		for began := time.Now(); !full.Load() && time.Since(began) < patience; {
			var calls sync.WaitGroup
			for range 64 {
				calls.Go(call)
			}
			calls.Wait()
		}
	}()
	select {
	case <-left:
	case <-time.After(2 * patience):
		t.Errorf("calls with a ctx of a second still wait for the pool")
	}
	if !told.Load() || !full.Load() {
		t.Errorf("pool_exhausted was told: %v; the number of calls that wait is bounded: %v", told.Load(), full.Load())
	}
	release()
	<-left
	eventually(t, "the pool serves calls again", func() bool {
		r, err := store.SetNX(t.Context(), "a", "another", 20*time.Second)
		return err == nil && !r.OK
	})
}
