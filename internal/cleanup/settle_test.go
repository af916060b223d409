package cleanup

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An answer to Settle shows that the server answers again, so the other cleanups do not wait for the
// next probe.
func TestTheQueueGoesOnWhenSettleIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		var mu sync.Mutex
		down, gone := true, map[string]time.Time{}
		for _, key := range []string{"a", "b"} {
			q.Add(t.Context(), Entry{Key: key, TTL: time.Hour, Known: true, Remove: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return errors.New("down")
				}
				gone[key] = time.Now()
				return nil
			}})
		}
		for time.Sleep(20 * time.Second); pauseLeft(q) < 500*time.Millisecond; {
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		answered := time.Now()
		if found, err := q.Settle(t.Context(), "a"); !found || err != nil {
			t.Fatalf("Settle = %v, %v", found, err)
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if late := gone["b"].Sub(answered); late > 100*time.Millisecond {
			t.Errorf("the next cleanup came %v after the answer", late)
		}
	})
}

func pauseLeft(q *Queue) time.Duration {
	q.leftovers.mu.Lock()
	defer q.leftovers.mu.Unlock()
	return time.Until(q.leftovers.server.pause.until)
}
