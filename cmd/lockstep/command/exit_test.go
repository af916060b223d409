package command

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// mortal is a Locker whose store answers no attempt from a time on.
type mortal struct {
	locker.Locker
	dies time.Time
}

func (m mortal) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if time.Now().Before(m.dies) {
		return m.Locker.Acquire(ctx, req)
	}
	return contract.Lease{}, errors.New("connection refused")
}

// The lock was held when the store answered last. That is no news to cron; an outage is.
func TestAWaitThatEndsInAnOutageIsNotTakenForAHeldLock(t *testing.T) {
	for _, row := range []struct {
		name     string
		dies     time.Duration
		heldCode int
		code     int
	}{
		{"held to the end", time.Hour, exitHeld, exitHeld},
		{"held to the end, with -E", time.Hour, 3, 3},
		{"held to the end, with -E 0", time.Hour, 0, 0},
		{"an outage at the end", time.Second, exitHeld, exitUnavailable},
		{"an outage at the end, with -E 0", time.Second, 0, exitUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := single.New(memory.New())
				held, err := locker.New(store).Lock(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				defer held.Unlock(context.Background())
				r := &running{cli: &cli{}, name: "k", wait: 12 * time.Second, ttl: defaultTTL, heldCode: row.heldCode}
				locks := locker.New(mortal{store, time.Now().Add(row.dies)})
				_, err = r.lock(t.Context(), locks)
				if !errors.Is(err, locker.ErrHeld) {
					t.Fatalf("%v; want an error that matches ErrHeld", err)
				}
				err = r.refused(err)
				if code := exitCode(err); code != row.code {
					t.Errorf("exit %d, want %d: %v", code, row.code, err)
				}
				if d := patience(err, 2*time.Second); (d < 2*time.Second) != (row.code == exitUnavailable) {
					t.Errorf("the end of the process waits for the store for %v", d)
				}
			})
		})
	}
}
