package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

// peersBugs are what other semaphores have got wrong.
var peersBugs = []struct {
	says  string
	play  func(t *testing.T, s *stage) (wrong error)
	naive []func(clock *wallclock.Clock, m *members) backends.SharedStore // it must go wrong with each
}{
	// https://github.com/redisson/redisson/pull/7098, https://github.com/redisson/redisson/issues/2045
	{"a dead holder costs no more than its own TTL, whatever the others renew", diesBesideARenewal, []naive{byOneEnd, byCount}},
	// npm redis-semaphore removes what is older than the lease of the caller that asks.
	{"a short lease does not end the long leases of others", asksWithAShorterLease, []naive{byAcquisition}},
	// npm redis-semaphore gives the whole key the lease of the last permit.
	{"the end of a short lease does not end the others", diesWithAShorterLease, []naive{byOneEnd, byAcquisition}},
	{"a client whose clock is ahead is not a third holder", asksWithAClockAhead, []naive{byAcquisition}},
	// https://github.com/rails/solid_queue/pull/761, https://github.com/redisson/redisson/issues/5066
	{"a permit that is released twice is one permit", releasesTwice, []naive{byCount}},
}

const (
	shortTTL = 200 * time.Millisecond
	soon     = 10 * time.Second // for what takes a short TTL on a machine that is free
)

func TestThePeersBugsAreNotOurs(t *testing.T) {
	for _, bug := range peersBugs {
		t.Run(bug.says, func(t *testing.T) {
			beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
				ours := func(*wallclock.Clock, *members) backends.SharedStore { return store }
				if err := bug.play(t, &stage{over: ours}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The same goes wrong with a store that does what such a library does.
func TestThePeersBugsAreFound(t *testing.T) {
	for _, bug := range peersBugs {
		for i, naive := range bug.naive {
			t.Run(fmt.Sprint(bug.says, " ", i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					err := bug.play(t, &stage{over: naive})
					if err == nil {
						t.Error("nothing went wrong")
					}
					t.Log(err)
				})
			})
		}
	}
}

func diesBesideARenewal(t *testing.T, s *stage) error {
	s.die(t, 2, shortTTL)
	alive := try(t, s.pool(2, shortTTL))
	defer alive.Unlock(context.Background()) // it is lost if this machine is too slow
	next, err := s.pool(2, shortTTL).Lock(t.Context(), "key", locker.WithWait(soon))
	if err != nil {
		return fmt.Errorf("the permit of a dead holder with a TTL of %v: %w", shortTTL, err)
	}
	_ = next.Unlock(context.Background()) // as above
	return nil
}

func asksWithAShorterLease(t *testing.T, s *stage) error {
	long := s.pool(2, ttl)
	defer unlock(t, try(t, long), try(t, long))
	time.Sleep(3 * shortTTL)
	return s.full(t, s.pool(2, shortTTL))
}

func diesWithAShorterLease(t *testing.T, s *stage) error {
	long := s.pool(3, ttl)
	defer unlock(t, try(t, long), try(t, long))
	s.die(t, 3, shortTTL)
	third, err := long.Lock(t.Context(), "key", locker.WithWait(soon))
	if err != nil {
		return err
	}
	defer unlock(t, third)
	return s.full(t, s.pool(3, shortTTL))
}

func asksWithAClockAhead(t *testing.T, s *stage) error {
	c := s.pool(2, ttl)
	defer unlock(t, try(t, c), try(t, c))
	ahead := new(wallclock.Clock)
	ahead.Jump(time.Minute)
	return s.full(t, locker.New(clocked{s.locker(2, ahead), ahead}, locker.WithTTL(ttl)))
}

func releasesTwice(t *testing.T, s *stage) error {
	l := s.locker(2, nil)
	twice := s.acquire(t, l, ttl)
	s.acquire(t, l, ttl)
	if err := l.Release(t.Context(), twice); err != nil {
		return err
	}
	_ = l.Release(t.Context(), twice) // it may say that the lease is lost
	c := s.pool(2, ttl)
	defer unlock(t, try(t, c))
	return s.full(t, c)
}

// A stage has one semaphore, under "key".
type stage struct {
	over    naive
	members members // of a naive one
}

func (s *stage) locker(permits int, clock *wallclock.Clock) locker.Locker {
	return semaphore.New(s.over(clock, &s.members), permits)
}

func (s *stage) pool(permits int, ttl time.Duration) *locker.Client {
	return locker.New(s.locker(permits, nil), locker.WithTTL(ttl))
}

func (s *stage) acquire(t *testing.T, l locker.Locker, ttl time.Duration) contract.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// die takes a permit that nobody renews or releases.
func (s *stage) die(t *testing.T, permits int, ttl time.Duration) {
	t.Helper()
	s.acquire(t, s.locker(permits, nil), ttl)
}

// full asks for a permit too many.
func (s *stage) full(t *testing.T, c *locker.Client) error {
	l, err := c.TryLock(t.Context(), "key")
	switch {
	case err == nil:
		_ = l.Unlock(context.Background())
		return errors.New("one permit too many was granted")
	case !errors.Is(err, locker.ErrHeld):
		return err
	}
	return nil
}

type clocked struct {
	locker.Locker
	clock *wallclock.Clock
}

func (c clocked) WallClock() *wallclock.Clock { return c.clock }

// naive makes a store for one client, with its clock. All clients of a stage have the same members.
type naive = func(clock *wallclock.Clock, m *members) backends.SharedStore

// members are the permits of a naive semaphore. It has one key.
type members struct {
	mu    sync.Mutex
	at    map[string]time.Time // by token
	end   time.Time            // of all
	count int
}

// byAcquisition keeps the time of each grant, by the clock of its client. A caller removes what is
// older than its own TTL: npm redis-semaphore, and Redis in Action.
func byAcquisition(clock *wallclock.Clock, m *members) backends.SharedStore {
	return &naiveStore{m,
		func(token string, ttl time.Duration, limit int) bool {
			now := clock.Now()
			for other, at := range m.at {
				if now.Sub(at) >= ttl {
					delete(m.at, other)
				}
			}
			if len(m.at) >= limit {
				return false
			}
			m.at[token] = now
			return true
		},
		func(token string, _ time.Duration) bool {
			_, there := m.at[token]
			if there {
				m.at[token] = clock.Now()
			}
			return there
		},
		func(token string) { delete(m.at, token) },
	}
}

// byOneEnd keeps all permits until one end, which each grant and renewal sets: the read locks of
// madelson's DistributedLock and, until 2026, of Redisson.
func byOneEnd(_ *wallclock.Clock, m *members) backends.SharedStore {
	look := func() {
		if !time.Now().Before(m.end) {
			clear(m.at)
		}
	}
	return &naiveStore{m,
		func(token string, ttl time.Duration, limit int) bool {
			if look(); len(m.at) >= limit {
				return false
			}
			m.at[token], m.end = time.Now(), time.Now().Add(ttl)
			return true
		},
		func(token string, ttl time.Duration) bool {
			look()
			_, there := m.at[token]
			if there {
				m.end = time.Now().Add(ttl)
			}
			return there
		},
		func(token string) { delete(m.at, token) },
	}
}

// byCount counts permits: RSemaphore of Redisson, gocraft/work, and many more.
func byCount(_ *wallclock.Clock, m *members) backends.SharedStore {
	return &naiveStore{m,
		func(_ string, _ time.Duration, limit int) bool {
			if m.count >= limit {
				return false
			}
			m.count++
			return true
		},
		func(string, time.Duration) bool { return true },
		func(string) { m.count-- },
	}
}

type naiveStore struct {
	*members
	enter func(token string, ttl time.Duration, limit int) bool
	renew func(token string, ttl time.Duration) bool
	leave func(token string)
}

func (n *naiveStore) lock() (unlock func()) {
	n.mu.Lock()
	if n.at == nil {
		n.at = map[string]time.Time{}
	}
	return n.mu.Unlock
}

func (n *naiveStore) Enter(_ context.Context, _, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	defer n.lock()()
	return backends.Result{OK: n.enter(token, ttl, a.Limit), Left: shortTTL}, nil
}

func (n *naiveStore) Renew(_ context.Context, _, token string, ttl time.Duration) (bool, error) {
	defer n.lock()()
	return n.renew(token, ttl), nil
}

func (n *naiveStore) Leave(_ context.Context, _, token string) (bool, error) {
	defer n.lock()()
	n.leave(token)
	return true, nil
}

func (n *naiveStore) Watch(context.Context, string, func()) error { return errors.ErrUnsupported }
