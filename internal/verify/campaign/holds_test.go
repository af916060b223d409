package campaign

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/locker"
)

// A holdLog is when a lock was held, and what happened in between.
type holdLog struct {
	mu    sync.Mutex
	began time.Time
	holds []history.Hold
	freed time.Time // when the last hold had been given back; zero: nobody knows
	gaps  []time.Duration
}

// hold logs one hold: from when it is known to one that has the lock until just before it is released. It returns how many there
// were. The lease is long enough for the release to be repeated until it is answered.
func (h *holdLog) hold(t *testing.T, l *locker.Lock, who string) int {
	t.Helper()
	start := time.Now()
	h.mu.Lock()
	if h.began.IsZero() {
		h.began = start
	}
	if !h.freed.IsZero() {
		h.gaps = append(h.gaps, max(start.Sub(h.freed), 0))
		h.freed = time.Time{}
	}
	n := len(h.holds)
	h.holds = append(h.holds, history.Hold{Key: l.Key(), Who: who, Start: int64(start.Sub(h.began))})
	h.mu.Unlock()

	time.Sleep(time.Millisecond) // the work, during which others come to wait

	h.mu.Lock()
	end := time.Now()
	h.holds[n].End = int64(end.Sub(h.began))
	h.freed = end
	h.mu.Unlock()
	if err := l.Unlock(context.Background()); err != nil {
		t.Errorf("%s: %v", who, err)
	}
	return n + 1
}

func (h *holdLog) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

func (h *holdLog) longestGap() (longest time.Duration) {
	for _, gap := range h.gaps {
		longest = max(longest, gap)
	}
	return longest
}

// String says how long it took from the end of a hold, before its release, to the next grant.
func (h *holdLog) String() string {
	late := 0
	for _, gap := range h.gaps {
		if gap > pollingCap {
			late++
		}
	}
	return fmt.Sprintf("%d hand-overs: p50, p99, max %s; %d over %v", len(h.gaps), spread(h.gaps), late, pollingCap)
}

const pollingCap = 250 * time.Millisecond
