package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
)

// fleet has a Client for readers and one for writers, as a process of its own would have.
type fleet struct {
	readers, writers *locker.Client
	faults           *backendtest.Faults
}

func newFleet(store beneath.Store) fleet {
	faults := new(backendtest.Faults)
	rw := rwlock.New(faults.Ordered(store))
	return fleet{locker.New(rw.Readers(), locker.WithTTL(ttl)), locker.New(rw.Writers(), locker.WithTTL(ttl)), faults}
}

const ttl = 10 * time.Second

func TestReadersHoldTogetherAndAWriterAlone(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		a, b := newFleet(store), newFleet(store)
		one, two := try(t, a.readers), try(t, b.readers)
		if h, r := two.Lease().Holds, two.Lease().Room; h != 2 || r != -1 {
			t.Errorf("the second reader has Holds %d and Room %d; want 2 and -1", h, r)
		}
		held(t, a.writers)
		unlock(t, one)
		held(t, b.writers)
		unlock(t, two)
		w := try(t, a.writers)
		if h, r := w.Lease().Holds, w.Lease().Room; h != 1 || r != 0 {
			t.Errorf("the writer has Holds %d and Room %d; want 1 and 0", h, r)
		}
		held(t, b.readers)
		held(t, b.writers)
		unlock(t, w)
	})
}

func TestANumberIsThatOfTheEpoch(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		a, b := newFleet(store), newFleet(store)
		var last uint64
		for range 3 {
			w := try(t, a.writers)
			if w.Fence() <= last {
				t.Errorf("a writer has the number %d after %d", w.Fence(), last)
			}
			last = w.Fence()
			unlock(t, w)
			one, two := try(t, a.readers), try(t, b.readers)
			if one.Fence() <= last || two.Fence() != one.Fence() {
				t.Errorf("two readers have the numbers %d and %d after %d; want one number, and a greater one", one.Fence(), two.Fence(), last)
			}
			unlock(t, one)
			three := try(t, a.readers)
			if three.Fence() != two.Fence() {
				t.Errorf("a reader that joins has the number %d; want %d", three.Fence(), two.Fence())
			}
			last = three.Fence()
			unlock(t, two, three)
		}
	})
}

// A reader that is resumed stays a reader: as a writer, it would write beside other readers.
func TestATicketIsForItsOwnSide(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		f := newFleet(store)
		for side, own := range map[string]*locker.Client{"reader": f.readers, "writer": f.writers} {
			other := f.readers
			if own == f.readers {
				other = f.writers
			}
			ticket, err := try(t, own).Transfer(t.Context(), ttl)
			if err != nil {
				t.Fatal(err)
			}
			_, err = other.Resume(t.Context(), ticket)
			if p := interface{ Permanent() bool }(nil); !errors.Is(err, backends.ErrOtherGroup) || !errors.As(err, &p) || !p.Permanent() || errors.Is(err, locker.ErrLost) {
				t.Errorf("the other side resumes a %s with %v; want a permanent error that says why", side, err)
			}
			l, err := own.Resume(t.Context(), ticket)
			if err != nil {
				t.Fatalf("Resume of a %s after that = %v", side, err)
			}
			unlock(t, l)
		}
	})
}

// A reader that asks after a writer waits, although other readers hold the lock.
func TestReadersWithoutAGapDoNotStarveAWriter(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		a, b, c := newFleet(store), newFleet(store), newFleet(store)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var readers sync.WaitGroup
		for i, f := range []fleet{a, b} {
			for j := range 3 {
				readers.Go(func() {
					time.Sleep(time.Duration(3*i+j) * 7 * time.Millisecond) // so that they overlap
					for ctx.Err() == nil {
						_ = f.readers.Do(ctx, "key", func(context.Context, *locker.Lock) error {
							time.Sleep(50 * time.Millisecond)
							return nil
						})
					}
				})
			}
		}
		time.Sleep(time.Second)
		for range 20 {
			began := time.Now()
			w, err := c.writers.Lock(ctx, "key")
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("a writer had to wait %v for readers that hold the lock for 50 ms each", took)
			}
			unlock(t, w)
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		readers.Wait()
	})
}

// Only readers that stood in the line of their Client when it had its turn pass the order. Here a
// reader always comes while another one asks.
func TestReadersOfOneClientDoNotStarveAWriter(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		readers := locker.New(slow{rwlock.New(store).Readers()}, locker.WithTTL(ttl))
		writers := newFleet(store).writers
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var reading sync.WaitGroup
		reading.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
				reading.Go(func() {
					_ = readers.Do(ctx, "key", func(context.Context, *locker.Lock) error {
						time.Sleep(50 * time.Millisecond)
						return nil
					})
				})
			}
		})
		time.Sleep(time.Second)
		l, err := writers.Lock(ctx, "key", locker.WithWait(time.Second))
		if err != nil {
			t.Errorf("a writer had to wait for more than a second: %v", err)
		} else {
			unlock(t, l)
		}
		cancel()
		reading.Wait()
	})
}

// slow is a Locker whose attempts take a while.
type slow struct{ locker.Locker }

func (s slow) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	time.Sleep(5 * time.Millisecond)
	return s.Locker.Acquire(ctx, req)
}

// The order is that of the requests: two readers, a writer, two readers, a writer.
func TestAllReadersUpToTheNextWriterAreLetInTogether(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		first := try(t, newFleet(store).writers)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for i, kind := range []string{"r", "r", "w", "r", "r", "w"} {
			f := newFleet(store)
			c := f.readers
			if kind == "w" {
				c = f.writers
			}
			all.Go(func() {
				err := c.Do(t.Context(), "key", func(context.Context, *locker.Lock) error {
					mu.Lock()
					order = append(order, fmt.Sprint(kind, i, " in"))
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					order = append(order, fmt.Sprint(kind, i, " out"))
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		unlock(t, first)
		all.Wait()
		if len(order) != 12 {
			t.Fatal(order)
		}
		for _, together := range [][]string{order[:4], order[6:10]} { // two readers, in any order
			slices.SortStableFunc(together[:2], strings.Compare)
			slices.SortStableFunc(together[2:], strings.Compare)
		}
		want := "r0 in r1 in r0 out r1 out w2 in w2 out r3 in r4 in r3 out r4 out w5 in w5 out"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A hundred readers of one Client are one position in the queue. When it is admitted, they all are.
func TestAllReadersOfOneClientAreLetInTogether(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		const readers = 100
		f := newFleet(store)
		w := try(t, newFleet(store).writers)
		locks := make(chan *locker.Lock, readers)
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				l, err := f.readers.Lock(t.Context(), "key")
				if err != nil {
					t.Error(err)
					return
				}
				locks <- l
			})
		}
		time.Sleep(5 * time.Second)
		next := newFleet(store)
		wrote := make(chan *locker.Lock, 1)
		all.Go(func() { // it asks after the readers, and must not part them
			l, err := next.writers.Lock(t.Context(), "key")
			if err != nil {
				t.Error(err)
			}
			wrote <- l
		})
		time.Sleep(time.Second)
		before := f.faults.Calls(backendtest.Enter)
		free := time.Now()
		unlock(t, w)
		var reading []*locker.Lock
		for range readers {
			reading = append(reading, <-locks)
			if waited := time.Since(free); waited > 0 {
				t.Fatalf("a reader had to wait another %v", waited)
			}
		}
		if calls := f.faults.Calls(backendtest.Enter) - before; calls != readers {
			t.Errorf("%d calls of Enter for %d readers", calls, readers)
		}
		select {
		case <-wrote:
			t.Error("the writer has the lock beside the readers")
		default:
		}
		unlock(t, reading...)
		unlock(t, <-wrote)
		all.Wait()
	})
}

func try(t *testing.T, c *locker.Client) *locker.Lock {
	t.Helper()
	l, err := c.TryLock(t.Context(), "key")
	if err != nil {
		t.Fatalf("TryLock = %v", err)
	}
	return l
}

func held(t *testing.T, c *locker.Client) {
	t.Helper()
	if _, err := c.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) {
		t.Errorf("TryLock = %v; want it held", err)
	}
}

func unlock(t *testing.T, locks ...*locker.Lock) {
	t.Helper()
	for _, l := range locks {
		if err := l.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}
