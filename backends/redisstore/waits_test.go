package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// grouping is a Pipeliner that notes what is sent outside of a connection of its own.
type grouping struct {
	trips
	pinned int
}

func (g *grouping) Pinned(context.Context, string, func(driver.Conn) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pinned++
	return errors.ErrUnsupported
}

// WAIT on another connection than the write would be answered at once, since nothing was written there.
func TestACommandAndItsWAITNeverShareARoundTripWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grouping{trips: trips{by: map[string]int{}}}
		s := New(g, WithReplicas(1, time.Second))
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				_, _ = s.SetNX(t.Context(), fmt.Sprint(n), "t", time.Second)
				_, _ = s.ExpireIf(t.Context(), fmt.Sprint(n), "t", time.Second)
			})
		}
		all.Wait()
		if g.pinned != 40 || len(g.words) > 0 {
			t.Errorf("%d of 40 calls had a connection of their own; the others sent %v", g.pinned, g.words)
		}
	})
}
