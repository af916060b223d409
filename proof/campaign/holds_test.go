package campaign

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/history"
)

// A holdLog records when a lock was held, and the gaps between.
type holdLog struct {
	mu    sync.Mutex
	began time.Time
	holds []history.Hold
	freed time.Time // when the last hold ended; zero: the lock is held
	gaps  []time.Duration
}

// hold records one hold, from the grant until just before the release, and returns the number of
// holds. The lease is long enough to repeat the release until it is answered.
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

// String says how long it took from the end of a hold, just before its release, to the next grant.
func (h *holdLog) String() string {
	late := 0
	for _, gap := range h.gaps {
		if gap > pollingCap {
			late++
		}
	}
	return fmt.Sprintf("%d gaps between holds: p50, p99, max %s; %d over %v", len(h.gaps), spread(h.gaps), late, pollingCap)
}

const pollingCap = 250 * time.Millisecond
