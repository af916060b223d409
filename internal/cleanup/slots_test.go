package cleanup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEveryAttemptGetsItsTurn has a few slots for many attempts, some of which leave, fail or are
// withdrawn. If a turn got lost, an attempt would wait for ever, and the bubble would report a
// deadlock.
func TestEveryAttemptGetsItsTurn(t *testing.T) {
	for _, oneServer := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const few = 3
			q := New(oneServer)
			for range maxSlots - few {
				q.TryReserve()
			}
			var all sync.WaitGroup
			for i := range 50 {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				all.Go(func() {
					for j := range 200 {
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(3) == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(3))*time.Millisecond)
						}
						c, err := q.Reserve(ctx, fmt.Sprint(i, j), true)
						cancel()
						if err != nil {
							time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
							continue
						}
						if r.IntN(2) == 0 {
							time.Sleep(time.Duration(r.IntN(2)) * time.Millisecond)
						}
						switch r.IntN(4) {
						case 0:
							q.Answered(c, errDown)
						case 1:
							q.Withdraw(c)
						default:
							q.Answered(c, nil)
						}
						q.Free()
					}
				})
			}
			all.Wait()
			if st := q.Stats(); st != (Stats{Slots: maxSlots - few}) {
				t.Errorf("one server %v: %+v", oneServer, st)
			}
			if n := q.slots.waiting.Load(); n != 0 || len(q.slots.waiters) != 0 {
				t.Errorf("one server %v: %d attempts count as waiting, %d are in the list", oneServer, n, len(q.slots.waiters))
			}
		})
	}
}

// isTurn tells whether a waiter was woken.
func isTurn(turn chan struct{}) bool {
	select {
	case <-turn:
		return true
	default:
		return false
	}
}

func TestAWakeUpIsForOneWaiter(t *testing.T) {
	s := new(slots)
	turns := []chan struct{}{s.join(), s.join(), s.join(), s.join()}
	woken := func() (n int) {
		for _, turn := range turns {
			if isTurn(turn) {
				n++
			}
		}
		return n
	}
	s.used.Store(maxSlots)
	if s.wake(2); woken() != 0 {
		t.Error("a waiter was woken without a free slot")
	}
	if s.free(); woken() != 1 || !isTurn(turns[0]) {
		t.Errorf("%d woken by a free slot", woken())
	}
	if s.leave(turns[2]); woken() != 1 {
		t.Error("a waiter that leaves before its turn wakes another")
	}
	if s.leave(turns[0]); woken() != 2 || !isTurn(turns[1]) {
		t.Error("a waiter that leaves after its turn does not pass it on")
	}
	s.used.Store(maxSlots)
	if s.wake(everyone); woken() != 3 || s.waiting.Load() != 0 {
		t.Errorf("%d woken, %d wait", woken(), s.waiting.Load())
	}
}

// A slot becomes free just when an attempt begins to wait for one.
func TestASlotThatIsFreedBesideItIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		for q.TryReserve() {
		}
		for range 20_000 {
			go q.Free()
			if _, err := q.Reserve(t.Context(), "", true); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := q.slots.waiting.Load(); n != 0 {
			t.Errorf("%d attempts count as waiting", n)
		}
	})
}

// An attempt that waits for a slot must not wait on, when the server begins to fail.
func TestAttemptsThatWaitForASlotFailWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		var calls []Call
		for i := range fewRefusals {
			c, _ := q.Reserve(t.Context(), fmt.Sprint(i), true)
			calls = append(calls, c)
		}
		for q.TryReserve() {
		}
		failed := make(chan error, 1)
		go func() {
			_, err := q.Reserve(t.Context(), "k", true)
			failed <- err
		}()
		synctest.Wait()
		for _, c := range calls {
			q.Answered(c, errDown)
		}
		var silent *SilentError
		if err := <-failed; !errors.As(err, &silent) {
			t.Errorf("Reserve = %v", err)
		}
	})
}
