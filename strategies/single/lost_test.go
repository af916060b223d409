package single_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// TestManyLossesAreReportedInTime loses many locks at once. A goroutine for each lock notes when it learns of
// the loss. The small form checks that each lock reports it. With LOCKSTEP_TORTURE=1 there are
// 100,000 locks, five times, and each reports the loss between its end and the margin after it.
func TestManyLossesAreReportedInTime(t *testing.T) {
	runs, locks, ttl := 1, 2_000, 2*time.Second
	if full.Size() {
		runs, locks, ttl = 5, 100_000, 10*time.Second
	}
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) { loseMany(t, locks, ttl) })
	}
}

func loseMany(t *testing.T, n int, ttl time.Duration) {
	s := redistest.Start(t)
	store, c := goredis.Open(&client.Options{Addr: s.Addr(), PoolSize: 16}, redisstore.WithoutQuarantine())
	defer c.Close()
	locks := locker.New(single.New(store), locker.WithTTL(ttl))

	held, told := make([]*locker.Lock, n), make([]time.Time, n)
	var takers, waiters sync.WaitGroup
	for taker := range 32 {
		takers.Go(func() {
			for i := taker; i < n; i += 32 {
				l, err := locks.Lock(t.Context(), fmt.Sprint("key ", i))
				if err != nil {
					t.Error(err)
					return
				}
				held[i] = l
				done := l.Context().Done()
				waiters.Go(func() {
					<-done
					told[i] = time.Now()
				})
			}
		})
	}
	takers.Wait()
	if t.Failed() {
		return
	}
	time.Sleep(ttl / 2) // all have been renewed
	paused := time.Now()
	s.Pause()
	defer s.Resume()
	waiters.Wait()
	for _, l := range held {
		if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrLost) {
			t.Fatalf("the context of %q ended because of %v", l.Key(), cause)
		}
	}
	if full.Size() {
		judge(t, held, told, paused, ttl)
	}
}

// judge checks the times.
func judge(t *testing.T, held []*locker.Lock, told []time.Time, paused time.Time, ttl time.Duration) {
	n, now := len(held), time.Now()
	margin := now.Add(ttl).Sub(contract.Until(now, ttl))
	early, late, worst := 0, 0, time.Duration(0)
	var first, last time.Time
	for i, l := range held {
		expires := l.Lease().Expires
		if expires.Before(paused) {
			t.Fatal("a lock was lost while the server ran: the machine has too much else to do")
		}
		if first.IsZero() || expires.Before(first) {
			first = expires
		}
		if expires.After(last) {
			last = expires
		}
		over := told[i].Sub(expires)
		worst = max(worst, over)
		switch {
		case over < 0:
			early++
		case over > margin:
			late++
		}
	}
	t.Logf("%d locks ended within %v; %d were reported before the end, %d later than the end and the margin of %v; the last one %v after its end",
		n, last.Sub(first).Round(time.Millisecond), early, late, margin, worst.Round(time.Millisecond))
	if late > 0 {
		t.Errorf("%d of %d locks were reported later than %v after their end, the last one %v", late, n, margin, worst)
	}
}
