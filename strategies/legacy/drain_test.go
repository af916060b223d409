package legacy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// Each recipe leaves something in the store, and no call that removes it is answered for a while.
func TestDrainWaitsForTheCleanupOfARecipe(t *testing.T) {
	const down, ttl = 5 * time.Second, time.Second
	for name, c := range map[string]struct {
		new    func(store backends.LegacyStore) locker.Locker
		remove backendtest.Op
		leave  func(t *testing.T, store *memory.Store, faults *backendtest.Faults, locks *locker.Client)
	}{
		"Expire": {legacy.Expire, backendtest.TxDeleteIf, func(t *testing.T, _ *memory.Store, faults *backendtest.Faults, locks *locker.Client) {
			faults.Once(backendtest.Expire, backendtest.Fail)
			if _, err := locks.TryLock(t.Context(), "key"); !errors.Is(err, backendtest.ErrInjected) {
				t.Errorf("TryLock = %v", err)
			}
		}},
		"SetBit": {legacy.SetBit, backendtest.SetBit, func(t *testing.T, _ *memory.Store, faults *backendtest.Faults, locks *locker.Client) {
			faults.Once(backendtest.SetBit, backendtest.LateReply(ttl-time.Millisecond)) // before the Client leaves the attempt
			if _, err := locks.TryLock(t.Context(), "key"); !errors.Is(err, instance.ErrLate) {
				t.Errorf("TryLock = %v", err)
			}
		}},
		"GetSet": {func(s backends.LegacyStore) locker.Locker { return legacy.GetSet(s) }, backendtest.TxDeleteIf,
			func(t *testing.T, store *memory.Store, faults *backendtest.Faults, locks *locker.Client) {
				l, err := locks.TryLock(t.Context(), "key")
				if err != nil {
					t.Fatal(err)
				}
				faults.Once(backendtest.GetSet, func(ctx context.Context, execute func(context.Context) error) error {
					store.Delete("key")
					return execute(ctx)
				})
				if err := l.Extend(t.Context(), long); !errors.Is(err, locker.ErrLost) {
					t.Errorf("Extend = %v", err)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, faults := inMemory(), new(backendtest.Faults)
				locks := locker.New(c.new(faults.Legacy(store.Legacy())), locker.WithTTL(ttl))
				faults.Set(c.remove, backendtest.Fail)
				c.leave(t, store, faults, locks)
				began := time.Now()
				time.AfterFunc(down, faults.Clear)
				if err := locks.Drain(t.Context()); err != nil || time.Since(began) < down {
					t.Errorf("Drain = %v after %v; want %v", err, time.Since(began), down)
				}
				if value, _, _ := store.Get("key"); value != "" && value != "\x00" {
					t.Errorf("%q is left", value)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
