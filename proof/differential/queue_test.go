package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/proof/full"
)

// TestAllStoresKeepTheSameQueue lets waiters ask for one key, in order or not, releases or deletes
// the key, and compares grants, held answers and positions with a model. Nothing depends on time:
// no lease ends. While the key is reserved, only the head asks, not in order, so that it gets the
// key even if the reservation has ended.
func TestAllStoresKeepTheSameQueue(t *testing.T) {
	sequences := 10
	if full.Size() {
		sequences = 200
	}
	first := seed()
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if !s.fake {
				t.Parallel()
			}
			tr := newTrial(t, s)
			for seed := first; seed < first+uint64(sequences); seed++ {
				if wrong := tr.queue(t, seed); wrong != "" {
					t.Fatalf("%s\n      again: go test -C proof/differential -run '%s$' -seed %d", wrong, t.Name(), seed)
				}
			}
		})
	}
}

// A queue is the state of the key in the model.
type queue struct {
	held    bool
	turn    int   // the waiter that the key is reserved for; 0: none
	waiters []int // with a position; no waiter has the number 0
}

// ask returns the right answer.
func (q *queue) ask(waiter int, inOrder, scriptless bool) answerOfTurn {
	refusal := func() answerOfTurn {
		if waiter == 0 || scriptless {
			return answerOfTurn{}
		}
		if !slices.Contains(q.waiters, waiter) {
			q.waiters = append(q.waiters, waiter)
		}
		return answerOfTurn{position: slices.Index(q.waiters, waiter) + 1}
	}
	switch {
	case scriptless && inOrder:
		return answerOfTurn{err: permanent}
	case q.held:
		return refusal()
	case inOrder && q.turn == 0 && len(q.waiters) > 0 && q.waiters[0] != waiter:
		q.free()
		return refusal()
	}
	q.held, q.turn = true, 0
	q.waiters = slices.DeleteFunc(q.waiters, func(w int) bool { return w == waiter })
	return answerOfTurn{ok: true}
}

// free reserves the key for the head.
func (q *queue) free() {
	if q.held = false; len(q.waiters) > 0 {
		q.turn = q.waiters[0]
		q.waiters = slices.Delete(q.waiters, 0, 1)
	}
}

type answerOfTurn struct {
	ok, foreign bool
	position    int
	err         failing
}

// queue performs one sequence on an empty store, and returns the first wrong answer.
func (tr *trial) queue(t *testing.T, seed uint64) (wrong string) {
	tr.play(t, func(t *testing.T) { wrong = tr.takeTurns(t, seed) })
	return wrong
}

func (tr *trial) takeTurns(t *testing.T, seed uint64) string {
	const key, waiters, steps = "k", 6, 100
	opened, o := tr.open(t)
	s := opened.(backends.QueuedStore)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var names [waiters + 1]string
	var woken [waiters + 1]atomic.Int64
	for w := 1; w <= waiters; w++ {
		names[w] = fmt.Sprintf("%d of %d", w, seed)
		if err := s.WatchQueued(ctx, key, names[w], func() { woken[w].Add(1) }); err != nil {
			return fmt.Sprintf("WatchQueued of %d: %v", w, err)
		}
	}
	r, q, token, told := rand.New(rand.NewPCG(seed, 1)), queue{}, "", []string{}
	for i := range steps {
		what := r.IntN(10)
		switch {
		case q.turn == 0 && what == 0:
			o.Delete(key) // which wakes nobody
			q.held = false
			told = append(told, "deleted from outside")
			continue
		case q.turn == 0 && what < 5:
			var heard int64
			if len(q.waiters) > 0 {
				heard = woken[q.waiters[0]].Load()
			}
			ok, err := s.DeleteIf(ctx, key, token)
			told = append(told, fmt.Sprintf("given up: %v, %v", ok, err))
			if ok != q.held || err != nil {
				return fmt.Sprintf("%s; want %v", strings.Join(told, "\n"), q.held)
			}
			if !q.held {
				continue
			}
			q.free()
			for limit := time.Now().Add(tr.patience); q.turn != 0 && woken[q.turn].Load() == heard; time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					return fmt.Sprintf("%s; and %d is not woken", strings.Join(told, "\n"), q.turn)
				}
			}
			continue
		}
		waiter, inOrder := r.IntN(waiters+1), r.IntN(2) == 0
		if q.turn != 0 {
			waiter, inOrder = q.turn, false
		}
		want := q.ask(waiter, inOrder, tr.rules.scriptless)
		attempt := fmt.Sprintf("token %d of %d", i, seed)
		res, err := s.SetNXQueued(ctx, key, attempt, time.Hour, backends.Turn{Waiter: names[waiter], InOrder: inOrder})
		if res.OK {
			token = attempt
		}
		got := answerOfTurn{res.OK, res.Foreign, res.Position, kindOf(err)}
		told = append(told, fmt.Sprintf("%d asks, in order: %v: %+v", waiter, inOrder, got))
		if got != want {
			return fmt.Sprintf("%s; want %+v, and then %+v", strings.Join(told, "\n"), want, q)
		}
	}
	return ""
}

// A misled store is a store in memory with a wrong queue.
type misled struct {
	*memory.LegacyStore
	turn func(t backends.Turn) backends.Turn
	told func(r backends.Result) backends.Result
	wake func(wake func()) func()
}

func (m misled) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if m.turn != nil {
		t = m.turn(t)
	}
	r, err := m.LegacyStore.SetNXQueued(ctx, key, value, ttl, t)
	if m.told != nil {
		r = m.told(r)
	}
	return r, err
}

func (m misled) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if m.wake != nil {
		wake = m.wake(wake)
	}
	return m.LegacyStore.WatchQueued(ctx, key, waiter, wake)
}

func TestAStoreWithABrokenQueueIsFound(t *testing.T) {
	for is, m := range map[string]misled{
		"free to whoever asks": {turn: func(t backends.Turn) backends.Turn { t.InOrder = false; return t }},
		"without places":       {turn: func(t backends.Turn) backends.Turn { t.Waiter = ""; return t }},
		"counted from 0":       {told: func(r backends.Result) backends.Result { r.Position = max(r.Position-1, 0); return r }},
		"foreign":              {told: func(r backends.Result) backends.Result { r.Foreign = !r.OK; return r }},
		"without wakes":        {wake: func(func()) func() { return func() {} }},
	} {
		tr := newTrial(t, subject{name: is, fake: true, prepare: func(*testing.T) func(t *testing.T) (store, outside) {
			return func(*testing.T) (store, outside) {
				s := memory.New(memory.WithMaxTTL(maxTTL))
				m.LegacyStore = s.Legacy()
				return m, s
			}
		}})
		var wrong string
		for seed := uint64(1); seed <= 10 && wrong == ""; seed++ {
			wrong = tr.queue(t, seed)
		}
		if wrong == "" {
			t.Errorf("a queue %s is not found", is)
		}
	}
}
