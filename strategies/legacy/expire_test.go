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
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// TestAFaultBetweenSetnxAndExpireLeavesNothing as long as the process lives.
func TestAFaultBetweenSetnxAndExpireLeavesNothing(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"the request is lost": backendtest.Fail,
		"the reply is lost":   backendtest.LoseReply,
		"the store hangs":     backendtest.Hang,
		"the reply comes too late": func(ctx context.Context, execute func(context.Context) error) error {
			time.Sleep(long)
			return execute(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := inMemory()
				faults := new(backendtest.Faults)
				faults.Once(backendtest.Expire, fault)
				faults.Once(backendtest.TxDeleteIf, backendtest.Fail, backendtest.Fail)
				ctx, cancel := context.WithTimeout(t.Context(), 2*long)
				defer cancel()
				_, err := legacy.Expire(faults.Legacy(store.Legacy())).Acquire(ctx, request(long))
				if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
					t.Errorf("Acquire = %v", err)
				}
				time.Sleep(time.Second)
				if _, _, found := store.Get("key"); found {
					t.Error("the key is there")
				}
			})
		})
	}
}

// TestACleanUpOutlivesAShortTTL, since the value to remove may have no expiry.
func TestACleanUpOutlivesAShortTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		faults.Set(backendtest.All, backendtest.LoseReply)
		faults.Set(backendtest.TxDeleteIf, backendtest.Fail)
		if _, err := legacy.Expire(faults.Legacy(store.Legacy())).Acquire(t.Context(), request(brief)); err == nil {
			t.Fatal("Acquire succeeded")
		}
		time.Sleep(30 * time.Second)
		faults.Clear()
		time.Sleep(2 * time.Second)
		if _, _, found := store.Get("key"); found {
			t.Error("the key is there")
		}
	})
}

func TestAKeyThatMayHaveNoExpiryIsUndoneAtOnce(t *testing.T) {
	store := inMemory()
	faults := new(backendtest.Faults)
	faults.Set(backendtest.Expire, backendtest.Permanent)
	_, err := legacy.Expire(faults.Legacy(store.Legacy())).Acquire(t.Context(), request(long))
	var permanent interface{ Permanent() bool }
	if !errors.As(err, &permanent) || !permanent.Permanent() {
		t.Errorf("Acquire = %v, want a permanent error", err)
	}
	if _, _, found := store.Get("key"); found {
		t.Error("the key is there")
	}
}

func TestAKeyThatIsGoneBeforeItsExpiryIsNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		faults.Once(backendtest.Expire, func(ctx context.Context, execute func(context.Context) error) error {
			store.Delete("key")
			return execute(ctx)
		})
		_, err := legacy.Expire(faults.Legacy(store.Legacy())).Acquire(t.Context(), request(long))
		if err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
	})
}

// TestAShorterExtensionLeavesALongLeaseItsLife also checks the store, where PEXPIRE would shorten
// it.
func TestAShorterExtensionLeavesALongLeaseItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.WithMaxTTL(time.Minute)) // so Extend must not send more than the ttl of before
		l := legacy.Expire(store.Legacy())
		lease := grant(t, l, time.Minute)
		for range 5 {
			var err error
			if lease, err = l.Extend(t.Context(), lease, contract.MinTTL); err != nil {
				t.Fatal(err)
			}
			if _, left, _ := store.Get("key"); left < time.Until(lease.Expires) {
				t.Errorf("the key lives for %v, the lease for %v", left, time.Until(lease.Expires))
			}
			time.Sleep(7777 * time.Microsecond)
		}
	})
}

func TestAWaiterThatMayNotRepairGetsTheErrorOfTheStore(t *testing.T) {
	store := inMemory()
	store.Set("key", "someone", 0)
	faults := new(backendtest.Faults)
	faults.Set(backendtest.Expire, backendtest.Permanent)
	_, err := locker.New(legacy.Expire(faults.Legacy(store.Legacy()))).Lock(t.Context(), "key")
	if !errors.Is(err, backendtest.ErrInjected) || errors.Is(err, locker.ErrHeld) {
		t.Errorf("Lock = %v", err)
	}
}

type unsent struct{ error }

func (unsent) Unsent() bool { return true }

func (u unsent) Unwrap() error { return u.error }

// A quorum cleans up after its nodes, but not where a node reports that nothing was done. Then the
// key would stay locked for ever.
func TestAnExpiryThatWasNotSentLeavesSomethingToCleanUp(t *testing.T) {
	store := inMemory()
	faults := new(backendtest.Faults)
	faults.Set(backendtest.Expire, func(context.Context, func(context.Context) error) error { return unsent{backendtest.ErrInjected} })
	ctx := calls.ForNode(t.Context())
	_, err := legacy.Expire(faults.Legacy(store.Legacy())).Acquire(ctx, request(time.Second))
	if _, _, found := store.Get("key"); !found || !errors.Is(err, backendtest.ErrInjected) || backends.Unsent(err) || backends.Permanent(err) {
		t.Errorf("Acquire = %v; found: %v, unsent: %v", err, found, backends.Unsent(err))
	}
}

func TestTheQuorumAboveARecipeCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faults := inMemory(), new(backendtest.Faults)
		faults.Once(backendtest.Expire, backendtest.Fail)
		l := legacy.Expire(faults.Legacy(store.Legacy()))
		if _, err := l.Acquire(calls.ForNode(t.Context()), request(time.Second)); !errors.Is(err, backendtest.ErrInjected) {
			t.Errorf("Acquire = %v", err)
		}
		time.Sleep(time.Hour)
		if n := faults.Calls(backendtest.TxDeleteIf); n != 0 {
			t.Errorf("%d cleanups", n)
		}
		if n := legacy.Slots(l); n != 0 {
			t.Errorf("%d slots in use", n)
		}
	})
}

func TestALongTTLIsAnErrorBeforeAnythingIsSent(t *testing.T) {
	const want = `lockstep: acquire "key": ttl 1.001s is over the store's limit of 1s (see WithMaxTTL of the store's package)`
	for _, r := range recipes {
		faults := new(backendtest.Faults)
		_, err := r.new(faults.Legacy(memory.New(memory.WithMaxTTL(time.Second)).Legacy())).Acquire(t.Context(), request(1001*time.Millisecond))
		if err == nil || err.Error() != want || faults.Calls(backendtest.All) != 0 {
			t.Errorf("%s: Acquire = %v after %d calls; want %s", r.name, err, faults.Calls(backendtest.All), want)
		}
	}
}

func TestAnAttemptThatFindsNoSlotSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		l := legacy.Expire(store.Legacy())
		free := legacy.TakeSlots(l)
		ctx, cancel := context.WithTimeout(t.Context(), brief)
		defer cancel()
		_, err := l.Acquire(ctx, request(long))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, new(*cleanup.FullError)) || !backends.Unsent(err) {
			t.Errorf("Acquire = %v", err)
		}
		if _, _, found := store.Get("key"); found {
			t.Error("the key is there")
		}
		free()
		if _, err := l.Acquire(t.Context(), request(long)); err != nil {
			t.Errorf("with a slot: %v", err)
		}
	})
}
