package legacy_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// at returns a clock that stands still.
func at(t time.Time) legacy.GetSetOption { return legacy.WithClock(func() time.Time { return t }) }

func grant(t *testing.T, l locker.Locker, ttl time.Duration) contract.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), request(ttl))
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	return lease
}

func stored(t *testing.T, store *memory.Store) string {
	t.Helper()
	value, left, _ := store.Get("key")
	if left != 0 {
		t.Errorf("%q has an expiry", value)
	}
	return value
}

func TestAStampIsTheTimeTheTimeoutAndOne(t *testing.T) {
	now := time.Unix(1_700_000_000, 999_500_000)
	for _, c := range []struct {
		ttl  time.Duration
		opts []legacy.GetSetOption
		want string
	}{
		{10 * time.Second, nil, "1700000011"},
		{10 * time.Second, []legacy.GetSetOption{nil}, "1700000011"}, // a nil option changes nothing
		{1500 * time.Millisecond, nil, "1700000003"},
		{10 * time.Millisecond, nil, "1700000002"},
		{10 * time.Second, []legacy.GetSetOption{legacy.InMilliseconds()}, "1700000011000"},
		{10 * time.Millisecond, []legacy.GetSetOption{legacy.InMilliseconds()}, "1700000001010"},
	} {
		store := inMemory()
		grant(t, legacy.GetSet(store.Legacy(), append(c.opts, at(now))...), c.ttl)
		if got := stored(t, store); got != c.want {
			t.Errorf("%v: %s, want %s", c.ttl, got, c.want)
		}
	}
}

func TestWhatKeepsAGetSetOut(t *testing.T) {
	now := time.Unix(1_700_000_000, 500_000_000)
	milliseconds := []legacy.GetSetOption{legacy.InMilliseconds()}
	for _, c := range []struct {
		says, value string
		expires     time.Duration
		opts        []legacy.GetSetOption
		want        string // granted, foreign, or how long the lock is held
	}{
		{"a stamp to come", "1700000003", 0, nil, "1.5s"},
		{"a stamp of the next second: its lease has ended", "1700000001", 0, nil, "0s"},
		{"the stamp of this second", "1700000000", 0, nil, "granted"},
		{"a stamp that is past", "1699999999", 0, nil, "granted"},
		{"a stamp with a fraction, as Python has it", "1700000002.75", 0, nil, "1.25s"},
		{"one that is past by a fraction", "1700000000.5", 0, nil, "granted"},
		{"one that is not, by a fraction", "1700000000.75", 0, nil, "0s"},
		{"a stamp in milliseconds", "1700000003000", 0, milliseconds, "2.499s"},
		{"the stamp of this millisecond", "1700000000500", 0, milliseconds, "granted"},
		{"milliseconds where seconds are expected", "1600000000000", 0, nil, "foreign"},
		{"seconds where milliseconds are expected", "1600000000", 0, milliseconds, "foreign"},
		{"a 1", "1", 0, nil, "foreign"},
		{"a word", "locked", 0, nil, "foreign"},
		{"nothing", "", 0, nil, "foreign"},
		{"a number with a sign", "-1700000003", 0, nil, "foreign"},
		{"a number in hexadecimal", "0x65", 0, nil, "foreign"},
		{"two points", "1.7.0", 0, nil, "foreign"},
		{"a lock of single", contract.NewToken(), time.Minute, nil, "1m0s"},
	} {
		t.Run(c.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := inMemory()
				store.Set("key", c.value, c.expires)
				_, err := legacy.GetSet(store.Legacy(), append(c.opts, at(now))...).Acquire(t.Context(), request(time.Second))
				got := "granted"
				if held := (*locker.HeldError)(nil); errors.As(err, &held) {
					got = held.Left.Round(time.Millisecond).String()
					if held.Foreign {
						got = "foreign"
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if value, _, _ := store.Get("key"); got != "granted" && value != c.value {
					t.Errorf("%q has become %q", c.value, value)
				}
			})
		})
	}
}

func TestAGetSetThatCannotReadTheExpiryDoesNotReportHeld(t *testing.T) {
	store := inMemory()
	store.Set("key", "word", time.Minute)
	faults := new(backendtest.Faults)
	faults.Once(backendtest.Left, backendtest.Fail)
	_, err := legacy.GetSet(faults.Legacy(store.Legacy())).Acquire(t.Context(), request(time.Second))
	if !errors.Is(err, backendtest.ErrInjected) || errors.Is(err, locker.ErrHeld) {
		t.Errorf("Acquire = %v", err)
	}
	if value, _, _ := store.Get("key"); value != "word" {
		t.Errorf("%q is stored", value)
	}
}

func TestALockThatIsReleasedWhileItIsLookedAtIsHeldByNobodyKnown(t *testing.T) {
	store := inMemory()
	store.Set("key", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10), 0)
	faults := new(backendtest.Faults)
	faults.Once(backendtest.Get, func(ctx context.Context, execute func(context.Context) error) error {
		store.Delete("key")
		return execute(ctx)
	})
	_, err := legacy.GetSet(faults.Legacy(store.Legacy())).Acquire(t.Context(), request(long))
	if held := (*locker.HeldError)(nil); !errors.As(err, &held) || held.Left != 0 || held.Foreign {
		t.Errorf("Acquire = %v", err)
	}
	if n := faults.Calls(backendtest.All); n != 2 {
		t.Errorf("%d calls, want SETNX and GET", n)
	}
	if _, _, found := store.Get("key"); found {
		t.Error("something is stored")
	}
}

func TestAGetSetThatFindsNothingIsGranted(t *testing.T) {
	store := inMemory()
	store.Set("key", staleStamp(), 0)
	faults := new(backendtest.Faults)
	faults.Once(backendtest.GetSet, func(ctx context.Context, execute func(context.Context) error) error {
		store.Delete("key")
		return execute(ctx)
	})
	grant(t, legacy.GetSet(faults.Legacy(store.Legacy())), long)
}

func TestExtendNeverMakesAStampEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		l := legacy.GetSet(store.Legacy())
		lease := grant(t, l, time.Minute)
		first := stored(t, store)
		named := contract.Lease{Key: lease.Key, Token: lease.Token} // such a lease does not say when it ends
		if _, err := l.Extend(t.Context(), named, time.Second); err != nil || stored(t, store) != first {
			t.Errorf("Extend = %v, the stamp was %s and is %s", err, first, stored(t, store))
		}
	})
}

// In each of these tests the extension finds its own stamp with GET, and then another value with
// GETSET.

func TestExtendDoesNotBringAKeyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		l := legacy.GetSet(faults.Legacy(store.Legacy()))
		lease := grant(t, l, long)
		faults.Once(backendtest.GetSet, func(ctx context.Context, execute func(context.Context) error) error {
			store.Delete("key")
			return execute(ctx)
		})
		if _, err := l.Extend(t.Context(), lease, long); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Extend = %v", err)
		}
		synctest.Wait()
		if _, _, found := store.Get("key"); found {
			t.Error("the key is there")
		}
	})
}

func TestExtendThatOverwritesAnotherIsLost(t *testing.T) {
	store := inMemory()
	faults := new(backendtest.Faults)
	l := legacy.GetSet(faults.Legacy(store.Legacy()))
	lease := grant(t, l, long)
	faults.Once(backendtest.GetSet, func(ctx context.Context, execute func(context.Context) error) error {
		store.Delete("key")
		grant(t, legacy.GetSet(store.Legacy()), long/2)
		return execute(ctx)
	})
	if _, err := l.Extend(t.Context(), lease, long); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Extend = %v", err)
	}
	if _, err := l.Extend(t.Context(), lease, long); !errors.Is(err, locker.ErrLost) {
		t.Errorf("the second Extend = %v", err)
	}
}

// A Release at the end of a minimum hold, or of the lease, is sent as the stamp gets past. Here the next
// holder takes the lock before it arrives.
func TestReleaseAsTheLeaseEndsLeavesTheNextHolderAlone(t *testing.T) {
	kept := func(t *testing.T, _ contract.Lease) context.Context { return calls.With(t.Context(), calls.Kept) }
	ended := func(t *testing.T, lease contract.Lease) context.Context {
		time.Sleep(time.Until(lease.Expires)) // the stamp is past a margin later
		return t.Context()
	}
	for _, ends := range []func(*testing.T, contract.Lease) context.Context{kept, ended} {
		for _, arrives := range []backendtest.Op{backendtest.Get, backendtest.TxDeleteIf} {
			synctest.Test(t, func(t *testing.T) {
				store := inMemory()
				faults := new(backendtest.Faults)
				l := legacy.GetSet(faults.Legacy(store.Legacy()))
				lease := grant(t, l, long)
				var next string
				faults.Once(arrives, func(ctx context.Context, execute func(context.Context) error) error {
					store.Delete("key")
					grant(t, legacy.GetSet(store.Legacy()), long/2)
					next = stored(t, store)
					return execute(ctx)
				})
				if err := l.Release(ends(t, lease), lease); !errors.Is(err, locker.ErrLost) {
					t.Errorf("Release = %v", err)
				}
				if got := stored(t, store); next == "" || got != next {
					t.Errorf("before %s: the stamp is %q; want %q", arrives, got, next)
				}
			})
		}
	}
}

func TestReleaseIsNotSentWhenOurStampIsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		l := legacy.GetSet(store.Legacy())
		lease := grant(t, l, time.Second)
		sparesTheNext(t, store, l, lease)
	})
}

// TestAnExtensionThatMayNotHaveLandedDoesNotCountForRelease: the last stamp known to be in the
// store is past, so another process may have the lock.
func TestAnExtensionThatMayNotHaveLandedDoesNotCountForRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		l := legacy.GetSet(faults.Legacy(store.Legacy()))
		lease := grant(t, l, time.Second)
		faults.Once(backendtest.GetSet, backendtest.Fail)
		if _, err := l.Extend(t.Context(), lease, long); err == nil {
			t.Fatal("Extend succeeded")
		}
		sparesTheNext(t, store, l, lease)
	})
}

// sparesTheNext releases a lease whose stamp is past while another holder has the lock.
func sparesTheNext(t *testing.T, store *memory.Store, l locker.Locker, lease contract.Lease) {
	t.Helper()
	time.Sleep(3 * time.Second)
	next := grant(t, legacy.GetSet(store.Legacy()), long)
	if err := l.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	if value := stored(t, store); value == "" {
		t.Errorf("the lock of the next holder is gone: %v", next)
	}
}

func TestAReleaseThatIsRepeatedLooksFirst(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{"reply lost": backendtest.LoseReply, "request lost": backendtest.Fail} {
		t.Run(name, func(t *testing.T) {
			store := inMemory()
			faults := new(backendtest.Faults)
			l := legacy.GetSet(faults.Legacy(store.Legacy()))
			lease := grant(t, l, long)
			faults.Once(backendtest.Delete, fault)
			if err := l.Release(t.Context(), lease); err == nil || errors.Is(err, locker.ErrLost) {
				t.Fatalf("Release = %v", err)
			}
			next, err := legacy.GetSet(store.Legacy()).Acquire(t.Context(), request(long/2))
			again := l.Release(t.Context(), lease)
			if name == "request lost" {
				if err == nil || again != nil {
					t.Errorf("another's Acquire = %v, %v, the repeated Release = %v", next, err, again)
				}
				return
			}
			if err != nil || !errors.Is(again, locker.ErrLost) || stored(t, store) == "" {
				t.Errorf("another's Acquire = %v, %v, the repeated Release = %v, and %q is left", next, err, again, stored(t, store))
			}
		})
	}
}

func TestOnlyTheLockerThatGrantedItEndsALease(t *testing.T) {
	for _, r := range recipes {
		if r.name == "Expire" {
			continue // for these the token is enough
		}
		t.Run(r.name, func(t *testing.T) {
			store := inMemory()
			lease := grant(t, r.new(store.Legacy()), long)
			before := stored(t, store)
			other := r.new(store.Legacy())
			if _, err := other.Extend(t.Context(), lease, long); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Extend = %v", err)
			}
			if err := other.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Release = %v", err)
			}
			if after := stored(t, store); after != before {
				t.Errorf("%q has become %q", before, after)
			}
		})
	}
}

func TestWhatIsOverIsNotRememberedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		l := legacy.GetSet(store.Legacy(), legacy.InMilliseconds())
		for i := range 10_000 {
			req := request(contract.MinTTL)
			req.Key = strconv.Itoa(i)
			if _, err := l.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := legacy.Remembers(l); n > 256 {
			t.Errorf("%d grants are remembered, of which about ten can be alive", n)
		}
	})
}

func TestAStampThatIsPastIsNotOursAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := legacy.GetSet(inMemory().Legacy())
		lease := grant(t, l, 3*time.Second)
		for range 1000 {
			time.Sleep(time.Second)
			var err error
			if lease, err = l.Extend(t.Context(), lease, 3*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if n := legacy.Sent(l); n > 5 {
			t.Errorf("%d stamps are remembered, of which at most five are to come", n)
		}
	})
}
