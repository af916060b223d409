package campaign

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestForcedReleases evicts holds while their Clients renew and release them, and while others wait
// for the keys. An operator evicts what it saw some ms before, so often another holder has the key.
//
//   - No two hold a key at once. An evicted hold lasts until its lease ends, since its holder may work.
//   - Each evicted hold is over for its holder, and no hold is stolen that was not evicted.
//
// The same run with an Evict that deletes, and with one that compares nothing, must fail:
//
//	go test ./internal/verify/campaign -run TestForcedReleases -v                      100 evictions
//	LOCKSTEP_TORTURE=1 go test ./internal/verify/campaign -run TestForcedReleases -v   2,000
func TestForcedReleases(t *testing.T) {
	many := 100
	if torture {
		many = 2000
	}
	for _, c := range []struct {
		name   string
		evict  func(backends.Inspector, backends.Evictor) evictFunc
		many   int
		broken bool
	}{
		{"Evict", func(_ backends.Inspector, e backends.Evictor) evictFunc { return e.Evict }, many, false},
		{"an Evict that deletes", deleting, 100, true},
		{"an Evict that compares nothing", comparingNothing, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := libraries[0].dial(t, redistest.Start(t).Addr()).store
			e := eviction{began: time.Now(), evicted: map[string]bool{}}
			e.run(t, store, c.evict(store, store), c.many)
			wrong := e.wrong()
			t.Logf("%d evictions and %d in vain; %d holds, %d of them stolen, and %d calls of Lock that failed; %d violations",
				len(e.evicted), e.vain.Load(), len(e.holds), e.stolen, e.failed.Load(), len(wrong))
			if (len(wrong) > 0) != c.broken {
				t.Errorf("%d violations, such as %q", len(wrong), wrong[:min(len(wrong), 3)])
			}
		})
	}
}

type evictFunc = func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error)

func deleting(_ backends.Inspector, e backends.Evictor) evictFunc {
	return func(ctx context.Context, key, seen string, how backends.Eviction) (bool, error) {
		how.Now = true
		return e.Evict(ctx, key, seen, how)
	}
}

func comparingNothing(i backends.Inspector, e backends.Evictor) evictFunc {
	return func(ctx context.Context, key, _ string, how backends.Eviction) (bool, error) {
		s, err := i.Inspect(ctx, key)
		if err != nil || s.Holding == 0 {
			return false, err
		}
		return e.Evict(ctx, key, s.Holds[0].Print, how)
	}
}

const (
	evictedKeys   = 20
	evictedTTL    = 600 * time.Millisecond
	workersOfKey  = 3
	evictionCrews = 4
)

// eviction is one run.
type eviction struct {
	began        time.Time
	vain, failed atomic.Int64

	mu      sync.Mutex
	evicted map[string]bool // by print
	holds   []endedHold
	stolen  int
}

type endedHold struct {
	history.Hold
	print          string
	stolen, intact bool // intact: its release was confirmed
}

func (e *eviction) run(t *testing.T, store backends.QueuedStore, evict evictFunc, many int) {
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var working, evicting sync.WaitGroup
	enough, done := context.WithCancel(ctx)
	defer done()
	for i := range evictedKeys * workersOfKey {
		locks := locker.New(single.New(store), locker.WithTTL(evictedTTL), locker.WithHolder(fmt.Sprint("worker ", i)))
		working.Go(func() { e.work(enough, locks, fmt.Sprint("key", i%evictedKeys)) })
	}
	for range evictionCrews {
		evicting.Go(func() {
			for e.count() < many && ctx.Err() == nil {
				e.evict(ctx, t, store.(backends.Inspector), evict)
			}
		})
	}
	evicting.Wait()
	done()
	working.Wait()
	if n := e.count(); n < many {
		t.Fatalf("%d evictions in 10 minutes; want %d", n, many)
	}
}

func (e *eviction) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.evicted)
}

// evict looks at a key, and evicts what it saw a little later.
func (e *eviction) evict(ctx context.Context, t *testing.T, i backends.Inspector, evict evictFunc) {
	key := fmt.Sprint("key", rand.IntN(evictedKeys))
	s, err := i.Inspect(ctx, key)
	if err != nil {
		t.Error(err)
		return
	}
	if s.Holding == 0 || s.Holds[0].Evicted {
		time.Sleep(time.Millisecond)
		return
	}
	time.Sleep(rand.N(evictedTTL / 2))
	seen := s.Holds[0].Print
	switch ok, err := evict(ctx, key, seen, backends.Eviction{By: "operator"}); {
	case err != nil:
		t.Error(err)
	case ok:
		e.mu.Lock()
		e.evicted[seen] = true
		e.mu.Unlock()
	default:
		e.vain.Add(1)
	}
}

// work takes a key again and again, often for longer than the TTL.
func (e *eviction) work(ctx context.Context, locks *locker.Client, key string) {
	for ctx.Err() == nil {
		l, err := locks.Lock(ctx, key)
		if err != nil { // on a slow machine, a grant may come when its lease has ended
			e.failed.Add(1)
			continue
		}
		start := time.Since(e.began)
		select {
		case <-l.Context().Done():
		case <-time.After(rand.N(evictedTTL * 3 / 2)):
		}
		end := time.Since(e.began)
		unlocked := l.Unlock(context.WithoutCancel(ctx))
		h := endedHold{Hold: history.Hold{Key: key, Start: int64(start)}, intact: unlocked == nil}
		if unlocked != nil { // it may have worked until its lease ended
			end = l.Lease().Expires.Sub(e.began)
		}
		lost, _ := errors.AsType[*locker.LostError](unlocked)
		h.stolen = lost != nil && lost.Reason == locker.LostStolen
		h.End = int64(max(end, start))
		sum := sha1.Sum([]byte(l.Lease().Token))
		h.print = hex.EncodeToString(sum[:8])
		h.Who = h.print
		e.mu.Lock()
		e.holds = append(e.holds, h)
		e.mu.Unlock()
	}
}

// wrong are the violations.
func (e *eviction) wrong() (all []string) {
	holds := make([]history.Hold, len(e.holds))
	for i, h := range e.holds {
		holds[i] = h.Hold
		switch {
		case h.stolen && !e.evicted[h.print]:
			all = append(all, fmt.Sprintf("%s: the hold %s was stolen, and not evicted", h.Key, h.print))
		case h.intact && e.evicted[h.print]:
			all = append(all, fmt.Sprintf("%s: the hold %s was evicted, and its holder knows nothing of it", h.Key, h.print))
		}
		if h.stolen {
			e.stolen++
		}
	}
	for _, o := range history.Overlaps(holds) {
		all = append(all, o.String())
	}
	return all
}
