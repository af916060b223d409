package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
)

func TestAWriterHoldsALock(t *testing.T) { beneath.Contract(t, "rwlock") }

func TestAReaderExcludesAWriterAndAWriterAReader(t *testing.T) {
	beneath.Run(t, lockertest.Harness{
		// Several readers are granted at once after a writer.
		Except: []string{"concurrent holders of one key exclude each other, and no update is lost"},
	}, func(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
		faults := new(backendtest.Faults)
		rw := rwlock.New(faults.Ordered(store))
		return &alternating{Locker: rw.Writers(), readers: rw.Readers(), reads: map[string]bool{}}, beneath.OfHolds(outside, faults)
	})
}

// alternating asks as a reader after a grant to a writer, and as a writer after a grant to a reader.
// The same token asks as it did before.
type alternating struct {
	locker.Locker // of writers
	readers       locker.Locker

	mu    sync.Mutex
	reads map[string]bool // the next of a key, and each token
}

func (a *alternating) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	a.mu.Lock()
	reads, again := a.reads["token "+req.Token]
	if !again {
		reads = a.reads["key "+req.Key]
		a.reads["token "+req.Token] = reads
	}
	a.mu.Unlock()
	l := a.Locker
	if reads {
		l = a.readers
	}
	lease, err := l.Acquire(ctx, req)
	if err == nil {
		a.mu.Lock()
		a.reads["key "+req.Key] = !reads
		a.mu.Unlock()
	}
	return lease, err
}

// A Lock inside a hold of another owner makes one attempt, with its own TTL.
func TestAReaderInsideTheHoldOfAnotherOwnerHasItsOwnTTL(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(rwlock.New(store).Readers())
		outer, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		for _, ttl := range []time.Duration{time.Second, 20 * time.Second} {
			began := time.Now()
			inner, err := c.Lock(locker.ContextWithOwner(outer.Context(), "other"), "key", locker.WithTTL(ttl), locker.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			if lasts := inner.Lease().Expires.Sub(began); lasts > ttl || lasts < ttl*9/10 {
				t.Errorf("a lease with a TTL of %v lasts %v", ttl, lasts)
			}
			if err := inner.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
