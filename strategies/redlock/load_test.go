package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// load is contenders for many locks. A holder keeps its lock for the whole lease and lets it run
// out. The other contenders make attempts again and again, and all together at its end. So many
// leases are held by a bare quorum.
type load struct {
	locker     locker.Locker
	keys       int
	contenders int // for each lock
	ttl        time.Duration
}

// run logs what holders believe. It calls disturb over and over until there were as many grants as
// grants says.
func (l load) run(t testing.TB, grants int64, disturb func()) []history.Hold {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, made := time.Now(), atomic.Int64{}
	logs := make([][]history.Hold, l.keys*l.contenders)
	var all sync.WaitGroup
	for i := range logs {
		all.Go(func() {
			h := history.Hold{Key: fmt.Sprint("key ", i%l.keys), Who: fmt.Sprint("contender ", i/l.keys)}
			for ctx.Err() == nil {
				lease, err := l.locker.Acquire(ctx, contract.Request{Key: h.Key, Token: contract.NewToken(), TTL: l.ttl})
				if err == nil {
					h.Start, h.End = int64(time.Since(began)), int64(lease.Expires.Sub(began))
					logs[i] = append(logs[i], h)
					made.Add(1)
				}
				pause(ctx, l.patience(lease, err))
			}
		})
	}
	for last, at := int64(0), began; made.Load() < grants; {
		disturb()
		if n := made.Load(); n > last {
			last, at = n, time.Now()
		} else if limit := max(time.Minute, 30*l.ttl); time.Since(at) > limit {
			t.Errorf("no grant for %v", limit)
			break
		}
	}
	stop()
	all.Wait()
	var holds []history.Hold
	for _, log := range logs {
		holds = append(holds, log...)
	}
	return holds
}

// patience returns how long a contender pauses.
func (l load) patience(lease contract.Lease, err error) time.Duration {
	if err == nil {
		return time.Until(lease.Expires)
	}
	again := l.ttl/8 + rand.N(l.ttl/2)
	if held := (*locker.HeldError)(nil); errors.As(err, &held) && held.Left > 0 {
		return min(again, held.Left)
	}
	return again
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// forgetting restarts one server after the other without its data, at most one in each period of
// every.
func forgetting(servers []*redistest.Server, every time.Duration) (disturb func(), count *int) {
	count = new(int)
	last := time.Now()
	return func() {
		time.Sleep(time.Until(last.Add(every)))
		s := servers[*count%len(servers)]
		s.Kill()
		last = time.Now()
		s.Restart()
		*count++
	}, count
}
