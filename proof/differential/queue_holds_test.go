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

// TestAllStoresKeepTheSameQueueOfHolds lets waiters ask for holds of one key, in order or not, with
// groups and limits that change from one wait of a waiter to the next. It compares the answers,
// numbers, positions and wakes with a model. No hold ends by itself. A sequence in which a
// reservation may have ended is judged up to there.
func TestAllStoresKeepTheSameQueueOfHolds(t *testing.T) {
	sequences := 10
	if full.Size() {
		sequences = 200
	}
	first := seed()
	for _, s := range subjects {
		if s.rules.scriptless {
			continue // it has no queue
		}
		t.Run(s.name, func(t *testing.T) {
			if !s.fake {
				t.Parallel()
			}
			tr := newTrial(t, s)
			steps := 0
			for seed := first; seed < first+uint64(sequences); seed++ {
				n, wrong := tr.holds(t, seed)
				if steps += n; wrong != "" {
					t.Fatalf("%s\n      again: go test -C proof/differential -run '%s$' -seed %d", wrong, t.Name(), seed)
				}
			}
			t.Logf("%d calls", steps)
			if s.fake && steps != sequences*stepsOfHolds {
				t.Errorf("%d calls were judged, although no time passes; want %d", steps, sequences*stepsOfHolds)
			}
		})
	}
}

const stepsOfHolds = 150

// terms are what a hold needs.
type terms struct {
	group string
	limit int
}

// holders is the state of the key in the model.
type holders struct {
	group    string
	holds    []string // tokens
	reserved []int    // waiters, which keep their position
	waiters  []int    // with a position; no waiter has the number 0
	asked    map[int]terms
	number   uint64 // of the last epoch
}

func (q *holders) fits(t terms) bool {
	n := len(q.holds) + len(q.reserved)
	return n == 0 || t.group == q.group && (t.limit == 0 || n < t.limit)
}

// admit reserves room for the waiters before me that fit.
func (q *holders) admit(me int) {
	for line := q.line(); len(line) > 0 && line[0] != me && q.fits(q.asked[line[0]]); line = line[1:] {
		q.reserved, q.group = append(q.reserved, line[0]), q.asked[line[0]].group
	}
}

// line is the waiters without a reservation.
func (q *holders) line() []int {
	return slices.DeleteFunc(slices.Clone(q.waiters), func(w int) bool { return slices.Contains(q.reserved, w) })
}

// enter returns the right answer, without its number.
func (q *holders) enter(waiter int, token string, t terms, inOrder bool) (want answerOfHold) {
	empty := len(q.holds)+len(q.reserved) == 0
	there, invited := slices.Contains(q.holds, token), slices.Contains(q.reserved, waiter)
	q.reserved = without(q.reserved, waiter)
	turn := true
	if inOrder && !there && !invited {
		q.admit(waiter)
		line := q.line()
		turn = len(line) == 0 || line[0] == waiter
	}
	switch {
	case there, invited && (t.limit == 0 || len(q.holds) < t.limit), !invited && turn && q.fits(t):
		if len(q.holds)+len(q.reserved) == 0 {
			q.group = t.group
		}
		if !there {
			q.holds = append(q.holds, token)
		}
		q.waiters = without(q.waiters, waiter)
		want = answerOfHold{ok: true, holds: len(q.holds), room: -1}
		if t.limit > 0 {
			want.room = max(t.limit-len(q.holds), 0)
		}
	default:
		want.holds = len(q.holds)
		if waiter != 0 {
			if !slices.Contains(q.waiters, waiter) {
				q.waiters = append(q.waiters, waiter)
			}
			q.asked[waiter] = t
		}
	}
	if empty || invited && !want.ok {
		q.admit(0)
	}
	if !want.ok && waiter != 0 {
		want.position = slices.Index(q.line(), waiter) + 1
	}
	return want
}

func (q *holders) leave(token string) (ok bool) {
	i := slices.Index(q.holds, token)
	if i < 0 {
		return false
	}
	q.holds = slices.Delete(q.holds, i, i+1)
	q.admit(0)
	return true
}

func without(waiters []int, waiter int) []int {
	return slices.DeleteFunc(waiters, func(w int) bool { return w == waiter })
}

type answerOfHold struct {
	ok                    bool
	holds, room, position int
	err                   failing
}

// holds performs one sequence on an empty store. It returns how many calls it has judged, and the
// first wrong answer.
func (tr *trial) holds(t *testing.T, seed uint64) (steps int, wrong string) {
	tr.play(t, func(t *testing.T) { steps, wrong = tr.takeHolds(t, seed) })
	return steps, wrong
}

func (tr *trial) takeHolds(t *testing.T, seed uint64) (steps int, wrong string) {
	const key, waiters = "k", 6
	opened, o := tr.open(t)
	s := opened.(backends.OrderedStore)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var names [waiters + 1]string
	var woken, heard [waiters + 1]atomic.Int64
	for w := 1; w <= waiters; w++ {
		names[w] = fmt.Sprintf("%d of %d", w, seed)
		if err := s.WatchQueued(ctx, key, names[w], func() { woken[w].Add(1) }); err != nil {
			return 0, fmt.Sprintf("WatchQueued of %d: %v", w, err)
		}
	}
	r, q, told := rand.New(rand.NewPCG(seed, 2)), holders{asked: map[int]terms{}}, []string{}
	most := r.IntN(2) // half of the sequences have many limits, and half of them none or 1, as readers and writers do
	var reserved time.Time
	for i := range stepsOfHolds {
		before := slices.Clone(q.reserved)
		if len(before) == 0 {
			reserved = time.Now()
		}
		for w := range heard {
			heard[w].Store(woken[w].Load())
		}
		token := fmt.Sprintf("token %d of %d", i, seed)
		if len(q.holds) > 0 && r.IntN(3) == 0 {
			token = q.holds[r.IntN(len(q.holds))]
		}
		what, waiter, inOrder := r.IntN(20), r.IntN(waiters+1), r.IntN(2) == 0
		asks := terms{pick(r, groups[:2]), pick(r, limits)}
		if most == 0 {
			asks.limit = map[string]int{groups[0]: 0, groups[1]: 1}[asks.group]
		}
		if len(before) > 0 && r.IntN(3) > 0 {
			waiter = pick(r, before)
		}
		if slices.Contains(before, waiter) || slices.Contains(q.waiters, waiter) {
			asks = q.asked[waiter] // a waiter does not change what it waits for
		}
		var got, want any
		var call string
		switch {
		case what == 0 && len(before) == 0:
			o.Delete(key) // which wakes nobody
			q.holds, call = nil, "deleted from outside"
		case what < 8:
			ok, err := s.Leave(ctx, key, token)
			call, got, want = "Leave "+token, fmt.Sprint(ok, err), fmt.Sprint(q.leave(token), nil)
		default:
			began := len(q.holds) == 0
			turn := backends.Turn{Waiter: names[waiter], InOrder: inOrder}
			res, err := s.Enter(ctx, key, token, time.Hour, backends.Admission{Group: asks.group, Limit: asks.limit, Numbered: true, Turn: turn})
			call = fmt.Sprintf("%d enters as %s with %+v, in order: %v", waiter, token, asks, inOrder)
			got, want = answerOfHold{res.OK, res.Holds, res.Room, res.Position, kindOf(err)}, q.enter(waiter, token, asks, inOrder)
			if res.OK && (began && res.Fence <= q.number || !began && res.Fence != q.number) {
				got = fmt.Sprintf("%+v with the number %d after %d; it begins an epoch: %v", got, res.Fence, q.number, began)
			}
			q.number = max(q.number, res.Fence)
		}
		if time.Since(reserved) > backends.Reservation/2 {
			return steps, "" // a reservation may have ended
		}
		steps++
		told = append(told, fmt.Sprintf("%s: %+v", call, got))
		if got != want {
			return steps, fmt.Sprintf("%s; want %+v, and then %+v", strings.Join(told, "\n"), want, q)
		}
		for _, w := range q.reserved {
			for limit := time.Now().Add(tr.patience); !slices.Contains(before, w) && woken[w].Load() == heard[w].Load(); time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					return steps, fmt.Sprintf("%s; and %d is not woken", strings.Join(told, "\n"), w)
				}
			}
		}
	}
	return steps, ""
}

// A crowded store is a store in memory with a wrong queue of holds.
type crowded struct {
	*memory.LegacyStore
	ask  func(a backends.Admission) backends.Admission
	told func(r backends.Result) backends.Result
	wake func(wake func()) func()
}

func (c crowded) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if c.ask != nil {
		a = c.ask(a)
	}
	r, err := c.LegacyStore.Enter(ctx, key, token, ttl, a)
	if c.told != nil {
		r = c.told(r)
	}
	return r, err
}

func (c crowded) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if c.wake != nil {
		wake = c.wake(wake)
	}
	return c.LegacyStore.WatchQueued(ctx, key, waiter, wake)
}

func TestAStoreWithABrokenQueueOfHoldsIsFound(t *testing.T) {
	for is, c := range map[string]crowded{
		"free to whoever asks":   {ask: func(a backends.Admission) backends.Admission { a.InOrder = false; return a }},
		"always in order":        {ask: func(a backends.Admission) backends.Admission { a.InOrder = true; return a }},
		"without places":         {ask: func(a backends.Admission) backends.Admission { a.Waiter = ""; return a }},
		"of one group":           {ask: func(a backends.Admission) backends.Admission { a.Group = ""; return a }},
		"with one hold too many": {ask: func(a backends.Admission) backends.Admission { a.Limit += min(a.Limit, 1); return a }},
		"with no new number":     {told: func(r backends.Result) backends.Result { r.Fence = min(r.Fence, 1); return r }},
		"without wakes":          {wake: func(func()) func() { return func() {} }},
	} {
		tr := newTrial(t, subject{name: is, fake: true, prepare: func(*testing.T) func(t *testing.T) (store, outside) {
			return func(*testing.T) (store, outside) {
				s := memory.New(memory.WithMaxTTL(maxTTL))
				c.LegacyStore = s.Legacy()
				return c, s
			}
		}})
		var wrong string
		for seed := uint64(1); seed <= 10 && wrong == ""; seed++ {
			_, wrong = tr.holds(t, seed)
		}
		if wrong == "" {
			t.Errorf("a queue of holds %s is not found", is)
		}
	}
}
