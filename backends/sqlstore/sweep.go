package sqlstore

import (
	"context"
	"sync/atomic"
	"time"
)

// sweeper has the database remove the rows that nobody needs any more, now and then. Nobody waits for it.
type sweeper struct{ last atomic.Int64 }

const sweepInterval = 10 * time.Minute

// now starts a sweep in the background, unless this store has started one less than 10 minutes ago.
func (s *sweeper) now(sweep func(context.Context)) {
	now := time.Now().UnixNano()
	last := s.last.Load()
	if last != 0 && now-last < int64(sweepInterval) || !s.last.CompareAndSwap(last, now) {
		return
	}
	if last == 0 { // a program that has just started has something else to do
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), behindLimit)
		defer cancel()
		sweep(ctx)
	}()
}
