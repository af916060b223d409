package locker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// The renewals of the long leases are all due at the same time and take 15 s in all. Meanwhile each
// short lease is due every second.
func TestMoreExtensionsThanFitAreMadeInTheOrderInWhichLeasesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = func(_ context.Context, next func() (locker.Lease, error)) (locker.Lease, error) {
			time.Sleep(500 * time.Millisecond)
			return next()
		}
		var held []*locker.Lock
		for i := range 8000 {
			held = append(held, mustLock(t, c, fmt.Sprint("long ", i), locker.WithTTL(30*time.Second)))
		}
		for i := range 10 {
			held = append(held, mustLock(t, c, fmt.Sprint("short ", i), locker.WithTTL(3*time.Second)))
		}
		time.Sleep(40 * time.Second)
		for _, l := range held {
			if err := context.Cause(l.Context()); err != nil {
				t.Errorf("%s: %v", l.Key(), err)
			}
			_ = l.Unlock(t.Context()) // lost or not, for the end of the bubble
		}
	})
}
