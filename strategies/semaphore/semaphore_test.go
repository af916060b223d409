package semaphore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

func TestASemaphoreOfOneIsALock(t *testing.T) { beneath.Contract(t, "semaphore") }

func TestASemaphoreOfOneInOrderIsALock(t *testing.T) { beneath.Contract(t, "semaphore-ordered") }

// The last of five permits is a lock as well.
func TestASemaphoreOfFiveWithFourTakenIsALock(t *testing.T) {
	beneath.Run(t, lockertest.Harness{}, func(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
		faults := new(backendtest.Faults)
		c := &crowd{OrderedStore: store, outside: outside, there: map[string]bool{}}
		return semaphore.New(faults.Ordered(c), 5), beneath.OfHolds(c, faults)
	})
}

// crowd is a store where others hold four permits of each key. They are there as soon as the key is
// asked for, and are not seen from outside.
type crowd struct {
	backends.OrderedStore
	outside beneath.Outside

	mu    sync.Mutex
	there map[string]bool
}

const others = 4

func (c *crowd) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	c.gather(key, a)
	return c.OrderedStore.Enter(ctx, key, token, ttl, a)
}

func (c *crowd) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	return c.OrderedStore.(backends.SharedTransferStore).TransferHold(ctx, key, from, token, ttl, group, numbered)
}

func (c *crowd) gather(key string, a backends.Admission) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there[key] {
		return
	}
	c.there[key] = true
	for i := range others {
		_, _ = c.OrderedStore.Enter(context.Background(), key, "other "+strconv.Itoa(i), c.longest(), backends.Admission{Group: a.Group, Limit: others})
	}
}

// longest is the longest ttl that the store takes.
func (c *crowd) longest() time.Duration {
	const probe = "\x01longest"
	for _, ttl := range []time.Duration{beneath.MaxTTL, backends.DefaultMaxTTL} {
		if r, err := c.OrderedStore.Enter(context.Background(), probe, "probe", ttl, backends.Admission{}); err == nil && r.OK {
			_, _ = c.Leave(context.Background(), probe, "probe")
			return ttl
		}
	}
	return backends.DefaultMaxTTL
}

// Holds counts the holds. It adds none of its own, which could keep out the others, or the one that is
// looked for.
func (c *crowd) Holds(key string) bool {
	state, err := c.OrderedStore.(backends.Inspector).Inspect(context.Background(), key)
	if err != nil || state.Foreign {
		return c.outside.Holds(key)
	}
	return state.Holding > others || !c.gathered(key) && state.Holding > 0
}

func (c *crowd) gathered(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.there[key]
}

func (c *crowd) set(key string, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[key] = there
}

func (c *crowd) Delete(key string)          { c.outside.Delete(key); c.set(key, false) }
func (c *crowd) Expire(key string)          { c.outside.Expire(key); c.set(key, false) }
func (c *crowd) SetForeign(key string)      { c.outside.SetForeign(key); c.set(key, true) }
func (c *crowd) SetForeignHolds(key string) { c.outside.SetForeignHolds(key); c.set(key, true) }
func (c *crowd) SetOther(key string)        { c.outside.SetOther(key); c.set(key, true) }
func (c *crowd) Evict(key, by string)       { c.outside.Evict(key, by) }

func (c *crowd) Inspect(ctx context.Context, key string) (backends.State, error) {
	return c.OrderedStore.(backends.Inspector).Inspect(ctx, key)
}
