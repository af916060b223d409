package rivals

import (
	"context"
	"crypto/sha1" // the name that Redis stores give a hold; it protects nothing
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// ForcedReleases evicts holds while their Clients renew and release them, and while others wait for
// the keys. An operator evicts what it saw some ms before, so often another holder has the key.
//
//   - No more hold a key at once than may. An evicted hold counts until its lease ends, since its holder
//     may work. A hold whose release got no reply counts until its work ended.
//   - Each evicted hold is over for its holder, and no hold is stolen or told as evicted that was not
//     evicted. On a slow machine an evicted hold may be told as stolen.
type ForcedReleases struct {
	Kind  Kind
	Store Evictions
	Evict EvictFunc     // nil: Evict of Store
	TTL   time.Duration // of the holds
	Many  int           // evictions; 0: 10, and 1,000 with LOCKSTEP_TORTURE=1
	Keys  int           // each with four workers; 0: 20
}

// Evictions is what a store needs for that.
type Evictions interface {
	backends.Inspector
	backends.Evictor
}

// EvictFunc is the type of Evict of a [backends.Evictor].
type EvictFunc = func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error)

// A Kind says how many hold a key at once.
type Kind struct {
	Name    string
	Lockers []locker.Locker // the workers of a key take them in turn
	wrong   func(holds [][]history.Hold) []string
}

// OneHolder is a lock.
func OneHolder(s backends.Store) Kind {
	return Kind{"one holder", []locker.Locker{single.New(s)}, func(holds [][]history.Hold) []string {
		return texts(history.Overlaps(holds[0]))
	}}
}

// TwoHolders is a semaphore.
func TwoHolders(s backends.SharedStore) Kind {
	return Kind{"two holders", []locker.Locker{semaphore.New(s, 2)}, func(holds [][]history.Hold) []string {
		return texts(history.Crowds(holds[0], 2))
	}}
}

// ReadersOrAWriter is a read-write lock.
func ReadersOrAWriter(s backends.OrderedStore) Kind {
	rw := rwlock.New(s)
	return Kind{"readers or a writer", []locker.Locker{rw.Readers(), rw.Writers()}, func(holds [][]history.Hold) []string {
		return texts(history.Mixtures(holds[0], holds[1]))
	}}
}

func texts[T fmt.Stringer](all []T) (texts []string) {
	for _, one := range all {
		texts = append(texts, one.String())
	}
	return texts
}

const (
	workersOfKey  = 4
	evictionCrews = 4
)

// Run fails the test at a violation.
func (f ForcedReleases) Run(t *testing.T) {
	t.Helper()
	if wrong := f.Violations(t); len(wrong) > 0 {
		t.Errorf("%d violations, such as %q", len(wrong), wrong[:min(len(wrong), 3)])
	}
}

// Violations are those of one run.
func (f ForcedReleases) Violations(t *testing.T) []string {
	t.Helper()
	if f.Many == 0 {
		if f.Many = 10; full.Size() {
			f.Many = 1000
		}
	}
	if f.Evict == nil {
		f.Evict = f.Store.Evict
	}
	if f.Keys == 0 {
		f.Keys = 20
	}
	began := time.Now()
	run := forcing{ForcedReleases: f, began: began, evicted: map[string]bool{}, unknown: map[string]bool{}, holds: make([][]endedHold, len(f.Kind.Lockers))}
	run.run(t)
	wrong := run.wrong()
	t.Logf("%s: %d evictions and %d in vain; %d holds, %d of them stolen, and %d calls of Lock that failed; %d violations; %v",
		f.Kind.Name, len(run.evicted), run.vain.Load(), run.held, run.stolen, run.failed.Load(), len(wrong), time.Since(began).Round(time.Second))
	return wrong
}

// forcing is one run.
type forcing struct {
	ForcedReleases
	began        time.Time
	vain, failed atomic.Int64
	held, stolen int

	mu      sync.Mutex
	evicted map[string]bool // by print
	unknown map[string]bool // what no answer came for
	holds   [][]endedHold   // by locker
}

type endedHold struct {
	history.Hold
	prints         [2]string // the one that the store gives it is among them
	stolen, intact bool      // intact: its only release was confirmed
	expires        int64
}

func (f *forcing) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	defer stop()
	var working, evicting sync.WaitGroup
	enough, done := context.WithCancel(ctx)
	defer done()
	for i := range f.Keys * workersOfKey {
		by := i / f.Keys % len(f.Kind.Lockers)
		locks := locker.New(f.Kind.Lockers[by], locker.WithTTL(f.TTL), locker.WithHolder(fmt.Sprint("worker ", i)))
		working.Go(func() { f.work(enough, locks, by, f.key(i%f.Keys)) })
	}
	for range evictionCrews {
		evicting.Go(func() {
			for errs := 0; f.count() < f.Many && ctx.Err() == nil; {
				if err := f.evict(ctx); err != nil && ctx.Err() == nil {
					if errs++; errs > 20 { // a machine that is busy has some
						t.Error(err)
						return
					}
				}
			}
		})
	}
	evicting.Wait()
	done()
	working.Wait()
	if n := f.count(); n < f.Many && !t.Failed() {
		t.Fatalf("%d evictions in 15 minutes; want %d", n, f.Many)
	}
}

// key is of one Kind: a semaphore and a lock keep values of other types.
func (f *forcing) key(n int) string { return fmt.Sprintf("%s %d", f.Kind.Name, n) }

func (f *forcing) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.evicted)
}

// evict looks at a key, and evicts one of the holds that it saw a little later.
func (f *forcing) evict(ctx context.Context) error {
	key := f.key(rand.IntN(f.Keys))
	s, err := f.Store.Inspect(ctx, key)
	if err != nil {
		return err
	}
	if len(s.Holds) == 0 {
		Rest(ctx, time.Millisecond)
		return nil
	}
	seen := s.Holds[rand.IntN(len(s.Holds))]
	if seen.Evicted {
		Rest(ctx, time.Millisecond)
		return nil
	}
	Rest(ctx, rand.N(f.TTL/2))
	switch ok, err := f.Evict(ctx, key, seen.Print, backends.Eviction{By: "operator"}); {
	case err == nil && !ok:
		f.vain.Add(1)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil {
			f.evicted[seen.Print] = true
			delete(f.unknown, seen.Print)
		} else if !f.evicted[seen.Print] {
			f.unknown[seen.Print] = true
		}
		return err
	}
	return nil
}

// work takes a key again and again, often for longer than the TTL.
func (f *forcing) work(ctx context.Context, locks *locker.Client, by int, key string) {
	for ctx.Err() == nil {
		l, err := locks.Lock(ctx, key)
		if err != nil { // on a slow machine, a grant may come when its lease has ended
			f.failed.Add(1)
			Rest(ctx, time.Millisecond)
			continue
		}
		start := time.Since(f.began)
		Rest(l.Context(), rand.N(f.TTL*3/2))
		end := min(time.Since(f.began), l.Lease().Expires.Sub(f.began)) // it may come back from its rest late
		asked := time.Now()
		unlocked := l.Unlock(context.WithoutCancel(ctx))
		// After a second without an answer Unlock sends the release again. From then on it may not tell
		// of a loss.
		once := time.Since(asked) < time.Second
		h := endedHold{Hold: history.Hold{Key: key, Start: int64(start), End: int64(max(end, start))}, intact: unlocked == nil && once}
		h.expires = int64(l.Lease().Expires.Sub(f.began))
		lost, _ := errors.AsType[*locker.LostError](unlocked)
		h.stolen = lost != nil && (lost.Reason == locker.LostStolen || lost.Reason == locker.LostEvicted)
		token := l.Lease().Token
		sum := sha1.Sum([]byte(token))
		h.prints = [2]string{backends.PrintOf(token), hex.EncodeToString(sum[:8])}
		h.Who = h.prints[0]
		f.mu.Lock()
		f.holds[by] = append(f.holds[by], h)
		f.mu.Unlock()
	}
}

// wrong are the violations.
func (f *forcing) wrong() (all []string) {
	holds := make([][]history.Hold, len(f.holds))
	for by, some := range f.holds {
		for _, h := range some {
			evicted := f.evicted[h.prints[0]] || f.evicted[h.prints[1]]
			unknown := f.unknown[h.prints[0]] || f.unknown[h.prints[1]]
			switch {
			case h.stolen && !evicted && !unknown:
				all = append(all, fmt.Sprintf("%s: the hold %s was stolen, and not evicted", h.Key, h.Who))
			case h.intact && evicted:
				all = append(all, fmt.Sprintf("%s: the hold %s was evicted, and its holder knows nothing of it", h.Key, h.Who))
			}
			if h.stolen || evicted && !h.intact {
				h.End = max(h.End, h.expires)
			}
			holds[by] = append(holds[by], h.Hold)
			if h.stolen {
				f.stolen++
			}
			f.held++
		}
	}
	return append(all, f.Kind.wrong(holds)...)
}

// Deleting is an Evict that deletes: it must be found out.
func Deleting(s Evictions) EvictFunc {
	return func(ctx context.Context, key, seen string, how backends.Eviction) (bool, error) {
		how.Now = true
		return s.Evict(ctx, key, seen, how)
	}
}

// ComparingNothing is an Evict that ends whatever hold there is: it must be found out.
func ComparingNothing(s Evictions) EvictFunc {
	return func(ctx context.Context, key, _ string, how backends.Eviction) (bool, error) {
		state, err := s.Inspect(ctx, key)
		if err != nil || state.Holding == 0 {
			return false, err
		}
		return s.Evict(ctx, key, state.Holds[0].Print, how)
	}
}
