package strategies_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// These tests lose the queue of a key under its waiters, in fake time. Each waiter is a Client with
// a Store of its own, as in a process of its own.

var queueing = map[string]func(s lossy) locker.Locker{
	"single":    func(s lossy) locker.Locker { return single.New(s) },
	"fair":      func(s lossy) locker.Locker { return fair.New(s) },
	"fenced":    func(s lossy) locker.Locker { return fenced.New(s) },
	"semaphore": func(s lossy) locker.Locker { return semaphore.New(s, 1, semaphore.WithOrder()) },
	"reentrant": func(s lossy) locker.Locker { return reentrant.New(s) },
	"rwlock":    func(s lossy) locker.Locker { return rwlock.New(s).Writers() },
}

// few are the strategies that together run all scripts; LOCKSTEP_TORTURE=1 plays the others too.
var few = []string{"single", "fair", "fenced", "semaphore"}

// lossy is what the strategies need.
type lossy interface {
	backends.NumberedStore
	backends.OrderedStore
	backends.QueuedStore
}

const (
	waiters  = 16
	lostHold = 20 * time.Millisecond
)

// crowd is a server, and waiters for one key.
type crowd struct {
	t      *testing.T
	server *embedded.Server
	told   *redis.PubSub // of lost queues
	wg     sync.WaitGroup

	mu      sync.Mutex
	granted []time.Time
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, server: embedded.New()}
	t.Cleanup(c.server.Close)
	c.told = c.client().Subscribe(t.Context(), "app:lockstep:lost")
	if _, err := c.told.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *crowd) client() *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Dialer: c.server.Dial, PoolSize: 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.t.Cleanup(func() { client.Close() })
	return client
}

func (c *crowd) store() *redisstore.Store {
	return goredis.New(c.client(), redisstore.WithPrefix("app:"))
}

// locking calls Lock in a goroutine and returns when that call sleeps.
func (c *crowd) locking(locks *locker.Client) {
	c.wg.Go(func() {
		l, err := locks.Lock(c.t.Context(), "key")
		if err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		c.granted = append(c.granted, time.Now())
		c.mu.Unlock()
		time.Sleep(lostHold)
		if err := l.Unlock(context.WithoutCancel(c.t.Context())); err != nil {
			c.t.Error(err)
		}
	})
	synctest.Wait()
}

// lose deletes keys behind the back of the stores.
func (c *crowd) lose(keys ...string) {
	if err := c.client().Del(c.t.Context(), keys...).Err(); err != nil {
		c.t.Fatal(err)
	}
}

// messages ends the subscription and returns how many lost queues were told of.
func (c *crowd) messages() (n int) {
	time.Sleep(time.Second)
	for {
		m, err := c.told.ReceiveTimeout(c.t.Context(), time.Millisecond)
		if err != nil {
			return n
		}
		if _, is := m.(*redis.Message); is {
			n++
		}
	}
}

const (
	lostKey      = "app:key"
	lostQueue    = "{app:key}:\x00queue"
	lostReserved = "{app:key}:\x00reserved"
)

// FLUSHALL, an eviction, and a failover to a server that lacks the queue all do this. Then the first
// waiter that looks tells the others, which look at once. The first one looks when the lease that it
// knows of ends, or within maxLook.
func TestALostQueueWakesItsWaitersOnce(t *testing.T) {
	race.LeaveOut(t)
	const maxLook = 6 * time.Second // see locker
	for name, over := range queueing {
		if !full.Size() && !slices.Contains(few, name) {
			continue
		}
		for what, lost := range map[string][]string{
			"all keys": {lostKey, lostQueue, lostReserved}, "the queue": {lostQueue}, "the queue, and a newcomer": {lostQueue},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrowd(t)
					held, err := locker.New(over(c.store())).Lock(t.Context(), "key")
					if err != nil {
						t.Fatal(err)
					}
					for range waiters {
						c.locking(locker.New(over(c.store())))
					}
					time.Sleep(time.Minute) // so that waiters look seldom
					c.lose(lost...)
					if strings.HasSuffix(what, "newcomer") {
						c.locking(locker.New(over(c.store())))
					}
					if len(lost) == 1 {
						time.Sleep(time.Millisecond)
						if err := held.Unlock(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					free := time.Now()
					c.wg.Wait()
					slices.SortFunc(c.granted, time.Time.Compare)
					granted := c.granted[len(c.granted)-waiters:] // the newcomer finds the lock free
					first, last := granted[0].Sub(free), granted[waiters-1].Sub(granted[0])
					t.Logf("first granted after %v, last %v later", first, last)
					if first > maxLook {
						t.Errorf("the first was granted after %v", first)
					}
					if most := waiters * 2 * lostHold; last > most {
						t.Errorf("the last was granted %v after the first; want at most %v", last, most)
					}
					if n := c.messages(); n != 1 {
						t.Errorf("the waiters were told %d times", n)
					}
				})
			})
		}
	}
}

// late is a store that is so far away, and does not say so, that each waiter comes too late for its
// reservation, and is passed over.
type late struct{ *redisstore.Store }

func (s late) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	defer time.Sleep(backends.Reservation)
	time.Sleep(backends.Reservation)
	t.RoundTrip = 0
	return s.Store.SetNXQueued(ctx, key, value, ttl, t)
}

func (s late) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	defer time.Sleep(backends.Reservation)
	time.Sleep(backends.Reservation)
	t.RoundTrip = 0
	return s.Store.SetNXNumbered(ctx, key, value, ttl, t)
}

func (s late) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	defer time.Sleep(backends.Reservation)
	time.Sleep(backends.Reservation)
	a.RoundTrip = 0
	return s.Store.Enter(ctx, key, token, ttl, a)
}

// Late heads are passed over, and waiters leave and come: the positions of the others are not lost.
func TestAQueueThatIsNotLostTellsNobody(t *testing.T) {
	race.LeaveOut(t)
	for name, over := range queueing {
		if !full.Size() && !slices.Contains(few, name) {
			continue
		}
		for distance, far := range map[string]bool{"near": false, "far": true} {
			t.Run(name+"/"+distance, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrowd(t)
					client := func() *locker.Client {
						if far {
							return locker.New(over(late{c.store()}))
						}
						return locker.New(over(c.store()))
					}
					leaves, leave := context.WithCancel(t.Context())
					for i := range waiters {
						locks := client()
						for range 3 {
							c.locking(locks)
						}
						if i%4 == 0 {
							c.wg.Go(func() {
								l, err := client().Lock(leaves, "key")
								if err == nil {
									err = l.Unlock(context.WithoutCancel(leaves))
								} else if leaves.Err() != nil {
									err = nil
								}
								if err != nil {
									t.Error(err)
								}
							})
						}
					}
					time.Sleep(time.Second)
					leave()
					c.wg.Wait()
					if n := c.messages(); n != 0 {
						t.Errorf("the waiters were told %d times that the queue was lost", n)
					}
				})
			})
		}
	}
}
