package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/history"
)

// A crew works under a few locks while servers fail, and records its grants and holds. Each lock
// protects a counter, which is read when a hold begins and written when it ends.
type crew struct {
	t     *testing.T
	keys  []string
	ttl   time.Duration // except of a lock that is kept
	bank  *bank
	began time.Time

	dismiss func() // stops all workers and waits for them
	over    chan struct{}
	working sync.WaitGroup
	hands   sync.RWMutex // read-locked by each worker that has a lock or asks for one

	mu      sync.Mutex
	holds   []history.Hold
	grants  []history.Grant
	granted map[string]int // by key
	failed  map[string]int // by key
	faults  map[string]int // by what the error says
	busy    int
	stolen  int // locks that were lost before their lease ended

	unconfirmed int         // releases, the lost ones among them
	patient     atomic.Bool // a release that is not confirmed soon is waited for
	slow        int         // such releases
}

const (
	keptTTL  = 4 * patience           // of a lock that is kept; it is not renewed within patience
	crewWait = 200 * time.Millisecond // for one lock
	crewRest = 20 * time.Millisecond  // between two locks

	releaseLimit = 3 * time.Second // how long Unlock tries
)

// cleaningUp is time for the cleanups, which take 2.6 s, while the servers still run. With closed
// clients they would go on for keptTTL and so run during the next experiment.
const cleaningUp = 5 * time.Second

// assemble starts so many workers for each Client.
func assemble(t *testing.T, keys []string, guarded bool, hands int, ttl time.Duration, clients ...*locker.Client) *crew {
	c := &crew{
		t: t, keys: keys, ttl: ttl, bank: openBank(t, guarded), began: time.Now(), over: make(chan struct{}),
		granted: map[string]int{}, failed: map[string]int{}, faults: map[string]int{},
	}
	c.dismiss = sync.OnceFunc(func() {
		close(c.over)
		c.working.Wait()
		time.Sleep(cleaningUp)
	})
	t.Cleanup(c.dismiss)
	for i, locks := range clients {
		for j := range hands {
			c.working.Go(func() { c.work(locks, fmt.Sprintf("hand %d of Client %d", j, i)) })
		}
	}
	return c
}

func (c *crew) work(locks *locker.Client, who string) {
	ctx := locker.ContextWithOwner(context.Background(), who)
	for {
		select {
		case <-c.over:
			return
		case <-time.After(crewRest):
		}
		c.hands.RLock()
		key := c.keys[rand.IntN(len(c.keys))]
		if l, err := locks.Lock(ctx, key, locker.WithTTL(c.ttl), locker.WithWait(crewWait)); err != nil {
			c.fail(key, err)
		} else {
			h := c.begin(l, who)
			time.Sleep(moment)
			_ = h.end() // a key that is left ends with its lease
		}
		c.hands.RUnlock()
	}
}

// still calls do: with rest while no worker has a lock, otherwise while they work.
func (c *crew) still(rest bool, do func()) {
	if rest {
		c.hands.Lock()
		defer c.hands.Unlock()
	}
	do()
}

// fail records why there is no grant.
func (c *crew) fail(key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fault *locker.Error
	switch {
	case errors.Is(err, locker.ErrLost):
		c.t.Errorf("%q: Lock = %v", key, err)
	case errors.Is(err, locker.ErrHeld):
		c.busy++
	case errors.As(err, &fault):
		c.failed[key]++
		c.faults[fault.ErrorType()]++
	default:
		c.t.Errorf("%q: Lock = %v, which is neither held nor a fault", key, err)
	}
}

// keep takes a lock as soon as possible, for longer than the workers do.
func (c *crew) keep(locks *locker.Client, key string) *hold {
	c.t.Helper()
	ctx := locker.ContextWithOwner(context.Background(), "keeper")
	var l *locker.Lock
	eventually(c.t, fmt.Sprintf("%q is granted to the keeper", key), func() bool {
		var err error
		l, err = locks.Lock(ctx, key, locker.WithTTL(keptTTL), locker.WithWait(patience))
		return err == nil
	})
	return c.begin(l, "keeper")
}

// A hold is one hold of a lock by the crew.
type hold struct {
	*locker.Lock
	crew  *crew
	who   string
	start time.Time
	read  message
}

func (c *crew) begin(l *locker.Lock, who string) *hold {
	h := &hold{Lock: l, crew: c, who: who, start: time.Now()}
	h.read = c.bank.read(message{Counter: l.Key(), Fence: l.Fence()})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted[l.Key()]++
	c.grants = append(c.grants, history.Grant{
		Key: l.Key(), Who: who, Asked: int64(l.Lease().Granted.Sub(c.began)), Answered: int64(h.start.Sub(c.began)), Fence: l.Fence(),
	})
	return h
}

// end writes the counter unless the lock was lost, and unlocks. The lock was held until now if its
// context has not ended a moment later.
func (h *hold) end() error {
	until := time.Now()
	h.read.Value++
	h.read.Forgone = h.Context().Err() != nil
	h.crew.bank.write(h.read)
	if !h.read.Forgone {
		h.crew.note(history.Hold{
			Key: h.Key(), Who: h.who, Start: int64(h.start.Sub(h.crew.began)), End: int64(until.Sub(h.crew.began)),
		})
	}
	began := time.Now()
	err := h.Unlock(context.Background())
	slow := err != nil && h.crew.patient.Load() && !errors.Is(err, locker.ErrLost)
	if slow { // the release goes on
		if took := time.Since(began); took < releaseLimit || backends.Permanent(err) {
			h.crew.t.Errorf("Unlock gave up after %v: %v; want it to try for %v", took, err, releaseLimit)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = h.Unlock(ctx)
	}
	h.crew.mu.Lock()
	defer h.crew.mu.Unlock()
	if slow {
		h.crew.slow++
	}
	if err != nil {
		h.crew.unconfirmed++
	}
	if lost := (*locker.LostError)(nil); errors.As(err, &lost) && lost.Reason == locker.LostStolen {
		h.crew.stolen++
	}
	return err
}

func (c *crew) note(h history.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = append(c.holds, h)
}

// grantsOf returns how often key was granted. answersOf counts the faults as well.
func (c *crew) grantsOf(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted[key]
}

func (c *crew) answersOf(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted[key] + c.failed[key]
}

// awaitMore waits until the count of each key has grown by n.
func (c *crew) awaitMore(n int, keys []string, what string, count func(key string) int) {
	c.t.Helper()
	at := map[string]int{}
	for _, key := range keys {
		at[key] = count(key) + n
	}
	eventually(c.t, what, func() bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return count(key) < at[key] })
	})
}

// longestGap returns the longest time in which nobody held one of the keys and which ended after
// since. A hold is recorded before its release, so the lock was free for a shorter time.
func (c *crew) longestGap(since time.Time, keys []string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.holds, func(a, b history.Hold) int { return cmp.Compare(a.Start, b.Start) })
	var longest int64
	ended := map[string]int64{}
	for _, h := range c.holds {
		if end, held := ended[h.Key]; held && h.Start > int64(since.Sub(c.began)) && slices.Contains(keys, h.Key) {
			longest = max(longest, h.Start-end)
		}
		ended[h.Key] = max(ended[h.Key], h.End)
	}
	return time.Duration(longest)
}

func (c *crew) String() string {
	return fmt.Sprintf("%d grants, %d overlaps, %d updates lost, %d refused as late, %d numbers fell, %d locks lost too early; "+
		"%d waits in vain, faults: %v", len(c.grants), len(history.Overlaps(c.holds)), c.bank.lost(), c.bank.late(),
		len(c.inversions()), c.stolen, c.busy, c.faults)
}

// inversions returns nothing if grants have no numbers.
func (c *crew) inversions() []history.Inversion {
	if len(c.grants) > 0 && c.grants[0].Fence == 0 {
		return nil
	}
	return history.Inversions(c.grants)
}
