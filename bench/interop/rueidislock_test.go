package interop_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// TestTheRollOutFromRueidislock plays the procedure of docs/migrating.md. Rueidislock and Lockstep do
// not see each other's keys. So a process of step 1 takes both locks, the old one first: it excludes
// the old processes, and those of step 2, which take the lock of Lockstep alone.
func TestTheRollOutFromRueidislock(t *testing.T) {
	ss := servers{redistest.Start(t)}
	for name, sides := range map[string][2]func(*testing.T, servers) guard{
		"old and step 1":    {oldProcess, step1},
		"step 1 and step 2": {step1, step2},
	} {
		t.Run(name, func(t *testing.T) {
			const workers, rounds = 2, 8
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			var holders atomic.Int32
			added := 0 // the locks are all that guards it
			add := func() {
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it at once", n)
				}
				time.Sleep(time.Millisecond) // of work
				added++
				holders.Add(-1)
			}
			var all sync.WaitGroup
			for _, side := range sides {
				for range workers {
					process := side(t, ss)
					all.Go(func() {
						for range rounds {
							if err := process(ctx, t.Name(), add); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			all.Wait()
			if want := len(sides) * workers * rounds; added != want {
				t.Errorf("%d of %d additions are left", added, want)
			}
		})
	}
}

// guard is what a process does to work under the lock of key.
type guard func(ctx context.Context, key string, work func()) error

func oldProcess(t *testing.T, ss servers) guard {
	t.Helper()
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{ss[0].Addr()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	return func(ctx context.Context, key string, work func()) error {
		_, release, err := locks.WithContext(ctx, key)
		if err != nil {
			return err
		}
		defer release()
		work()
		return nil
	}
}

func step1(t *testing.T, ss servers) guard {
	t.Helper()
	old, ours := oldProcess(t, ss), step2(t, ss)
	return func(ctx context.Context, key string, work func()) (err error) {
		failed := old(ctx, key, func() { err = ours(ctx, key, work) })
		if failed != nil {
			return failed
		}
		return err
	}
}

func step2(t *testing.T, ss servers) guard {
	t.Helper()
	locks := locker.New(single.New(goredis.New(ss.clients(t)[0])))
	return func(ctx context.Context, key string, work func()) error {
		return locks.Do(ctx, key, func(context.Context, *locker.Lock) error {
			work()
			return nil
		})
	}
}
