package instance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// faraway is a store whose next attempt takes so long, and has no answer if lost is true. It notes the
// Turn of the attempt.
type faraway struct {
	*memory.Store
	takes time.Duration
	lost  bool
	turn  backends.Turn
}

func (f *faraway) answer(t backends.Turn) (backends.Result, error) {
	f.turn = t
	time.Sleep(f.takes)
	if f.lost {
		return backends.Result{}, errors.New("no answer")
	}
	return backends.Result{}, nil
}

func (f *faraway) SetNXQueued(_ context.Context, _, _ string, _ time.Duration, t backends.Turn) (backends.Result, error) {
	return f.answer(t)
}

func (f *faraway) SetNXNumbered(_ context.Context, _, _ string, _ time.Duration, t backends.Turn) (backends.Result, error) {
	return f.answer(t)
}

func (f *faraway) Enter(_ context.Context, _, _ string, _ time.Duration, a backends.Admission) (backends.Result, error) {
	return f.answer(a.Turn)
}

// The store is told the least of the last eight round trips: the others may have waited for a row or for
// the processor, and a lock that was reserved for as long as they took would be free for nobody else.
func TestAStoreIsToldTheLeastOfTheLastRoundTrips(t *testing.T) {
	const ms = time.Millisecond
	attempts := []struct {
		takes, told time.Duration // told: before it
		lost        bool
	}{
		{takes: 1 * ms, lost: true, told: 0}, // an attempt without an answer tells nothing
		{takes: 900 * ms, told: 0},
		{takes: 30 * ms, told: 900 * ms}, // the first one opened a connection
		{takes: 2000 * ms, told: 30 * ms},
		{takes: 25 * ms, told: 30 * ms},
		{takes: 5 * ms, lost: true, told: 25 * ms},
		{takes: 40 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 25 * ms},
		{takes: 3000 * ms, told: 40 * ms}, // 25 ms is the ninth before it: the way has become longer
		{takes: 50 * ms, told: 3000 * ms},
		{takes: 1 * ms, told: 50 * ms},
	}
	for name, over := range map[string]func(*faraway) locker.Locker{
		"Queued":   func(f *faraway) locker.Locker { return instance.Queued(f, false) },
		"in order": func(f *faraway) locker.Locker { return instance.Queued(f, true) },
		"Numbered": func(f *faraway) locker.Locker { return instance.Numbered(f) },
		"Shared": func(f *faraway) locker.Locker {
			return instance.Shared(f, func(contract.Request) backends.Admission { return backends.Admission{Limit: 1} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faraway{Store: memory.New()}
				l := over(store)
				ask := func(i int, waiter string) time.Duration {
					req := contract.Request{Key: fmt.Sprint("key ", i), Token: contract.NewToken(), TTL: time.Minute, Turn: contract.Turn{Waiter: waiter}}
					if _, err := l.Acquire(t.Context(), req); err == nil {
						t.Fatal("an attempt was granted")
					}
					return store.turn.RoundTrip
				}
				for i, a := range attempts {
					store.takes, store.lost = a.takes, a.lost
					if told := ask(i, "waiter"); told != a.told {
						t.Errorf("attempt %d: the store is told of %v; want %v", i, told, a.told)
					}
				}
				if told := ask(len(attempts), ""); told != 0 {
					t.Errorf("a call without a waiter tells of %v", told)
				}
			})
		})
	}
}
