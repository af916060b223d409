package rwlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
)

// peersBugs are what other read-write locks have got wrong.
var peersBugs = []struct {
	says  string
	play  func(t *testing.T, store backends.OrderedStore) (wrong error)
	naive func() backends.OrderedStore // it must go wrong with this store
}{
	// https://github.com/redisson/redisson/pull/7098, and the read locks of madelson's DistributedLock
	{"the renewal of one reader keeps no dead reader alive", diesBesideAReader, newOneEnd},
	// https://github.com/minio/minio/issues/2629, https://github.com/redisson/redisson/issues/5379
	{"readers without a gap do not starve a writer", asksAmongReaders, func() backends.OrderedStore { return barging{memory.New()} }},
}

func TestThePeersBugsAreNotOurs(t *testing.T) {
	for _, bug := range peersBugs {
		t.Run(bug.says, func(t *testing.T) {
			beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
				if err := bug.play(t, store); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The same goes wrong with a store that does what such a library does.
func TestThePeersBugsAreFound(t *testing.T) {
	for _, bug := range peersBugs {
		t.Run(bug.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := bug.play(t, bug.naive())
				if err == nil {
					t.Error("nothing went wrong")
				}
				t.Log(err)
			})
		})
	}
}

const (
	shortTTL = 200 * time.Millisecond
	soon     = 10 * time.Second // for what takes a fraction of a second on a machine that is free
)

func diesBesideAReader(t *testing.T, store backends.OrderedStore) error {
	rw := rwlock.New(store)
	dead := contract.Request{Key: "key", Token: contract.NewToken(), TTL: shortTTL}
	if _, err := rw.Readers().Acquire(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	alive := try(t, locker.New(rw.Readers(), locker.WithTTL(ttl)))
	time.Sleep(2 * shortTTL) // the dead reader has ended
	if err := alive.Extend(t.Context(), ttl); err != nil {
		t.Error(err)
	}
	unlock(t, alive)
	w, err := locker.New(rw.Writers(), locker.WithTTL(ttl)).TryLock(t.Context(), "key")
	if err != nil {
		return fmt.Errorf("%v after the death of a reader with a TTL of %v: %w", 2*shortTTL, shortTTL, err)
	}
	unlock(t, w)
	return nil
}

// asksAmongReaders lets six readers of two processes overlap for as long as a writer waits.
func asksAmongReaders(t *testing.T, store backends.OrderedStore) error {
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for i := range 2 {
		readers := locker.New(rwlock.New(store).Readers(), locker.WithTTL(ttl))
		for j := range 3 {
			reading.Go(func() {
				time.Sleep(time.Duration(3*i+j) * 7 * time.Millisecond)
				for ctx.Err() == nil {
					_ = readers.Do(ctx, "key", func(context.Context, *locker.Lock) error {
						time.Sleep(50 * time.Millisecond)
						return nil
					})
				}
			})
		}
	}
	defer reading.Wait()
	defer cancel()
	time.Sleep(shortTTL)
	w, err := locker.New(rwlock.New(store).Writers(), locker.WithTTL(ttl)).Lock(ctx, "key", locker.WithWait(soon))
	if err != nil {
		return fmt.Errorf("a writer among readers that hold for 50 ms each: %w", err)
	}
	unlock(t, w)
	return nil
}

// barging lets in any hold that fits, whoever waits.
type barging struct{ backends.OrderedStore }

func (b barging) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	a.Turn = backends.Turn{}
	return b.OrderedStore.Enter(ctx, key, token, ttl, a)
}

// oneEnd keeps all holds of its key until one end, which each grant and renewal moves.
type oneEnd struct {
	backends.OrderedStore // whose queues nobody uses

	mu    sync.Mutex
	group string
	holds map[string]bool // by token
	end   time.Time
}

func newOneEnd() backends.OrderedStore {
	return &oneEnd{OrderedStore: memory.New(), holds: map[string]bool{}}
}

func (o *oneEnd) Enter(_ context.Context, _, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look()
	if n := len(o.holds); n > 0 && (a.Group != o.group || a.Limit > 0 && n >= a.Limit) {
		return backends.Result{Holds: n, Left: time.Until(o.end)}, nil
	}
	o.group, o.holds[token], o.end = a.Group, true, time.Now().Add(ttl)
	return backends.Result{OK: true, Holds: len(o.holds), Room: -1, Fence: 1}, nil
}

func (o *oneEnd) Renew(_ context.Context, _, token string, ttl time.Duration) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look()
	if o.holds[token] {
		o.end = time.Now().Add(ttl)
	}
	return o.holds[token], nil
}

func (o *oneEnd) Leave(_ context.Context, _, token string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	there := o.holds[token]
	delete(o.holds, token)
	return there, nil
}

func (o *oneEnd) look() {
	if !time.Now().Before(o.end) {
		clear(o.holds)
	}
}
