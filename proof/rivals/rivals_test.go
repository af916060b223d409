package rivals

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const ttl = time.Second

// played plays an experiment on a store in memory, in fake time.
func played(t *testing.T, c Campaign, store backends.Store) (cells []matrix.Cell, wrong func(violated bool) []string) {
	t.Helper()
	var found []Violation
	c.Where, c.Module, c.TTL = "memory", "proof/rivals", ttl
	c.Addr = func(func(string) string) string { return "memory" }
	c.Open = func(context.Context, string) (backends.Store, func() error, error) { return store, nil, nil }
	synctest.Test(t, func(t *testing.T) {
		cells, found = c.play(t)
		time.Sleep(time.Minute) // a Client keeps its subscription for a moment after its last lock
	})
	return cells, func(violated bool) []string {
		c.Violated = violated
		return c.wrong(cells, found)
	}
}

// mustFind fails the test unless each strategy was violated, and a campaign that wants none would fail.
func mustFind(t *testing.T, wrong func(violated bool) []string) {
	t.Helper()
	if complaints := wrong(true); len(complaints) > 0 {
		t.Errorf("with Violated: %v", complaints)
	}
	if len(wrong(false)) == 0 {
		t.Error("without Violated, the campaign would pass")
	}
}

func TestAStoreThatKeepsItsPromisesIsSafe(t *testing.T) {
	cells, wrong := played(t, Campaign{Faults: []Fault{None}, Rounds: 20, Grants: 20}, memory.New())
	if len(cells) != len(All()) {
		t.Errorf("%d cells; want one of each strategy", len(cells))
	}
	for _, cell := range cells {
		if cell.Verdict() != matrix.Safe || cell.Trials < 20*20 {
			t.Errorf("%s: %v", cell.Strategy, cell)
		}
	}
	if complaints := wrong(false); len(complaints) > 0 {
		t.Error(complaints)
	}
	if complaints := wrong(true); len(complaints) != len(All()) {
		t.Errorf("with Violated: %v; want a complaint for each strategy", complaints)
	}
}

func TestAStoreThatForgetsIsFound(t *testing.T) {
	store := memory.New()
	_, wrong := played(t, Campaign{Kept: true, Violated: true, Rounds: 1, Faults: []Fault{{"forgets", func(*Crew) {
		for _, s := range All() {
			store.Delete(s.Name)
		}
	}}}}, store)
	mustFind(t, wrong)
}

// late brings one release in three to the store after two TTLs. With careless, the store then deletes
// the value of whoever is there.
type late struct {
	backends.Store
	careless *memory.Store
}

func (l late) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if rand.IntN(3) == 0 {
		time.Sleep(2 * ttl)
	}
	if l.careless != nil {
		l.careless.Delete(key)
		return true, nil
	}
	return l.Store.DeleteIf(ctx, key, value)
}

func TestAReleaseThatDoesNotCompareIsFound(t *testing.T) {
	experiment := Campaign{Rounds: 3, Grants: 50, Faults: []Fault{{"releases late", func(*Crew) {}}}}
	if _, wrong := played(t, experiment, late{Store: memory.New()}); len(wrong(false)) > 0 {
		t.Errorf("with a store that compares: %v", wrong(false))
	}
	store := memory.New() // each bubble of fake time has its own
	_, wrong := played(t, experiment, late{store, store})
	mustFind(t, wrong)
}

// lazy does not renew, and says that it has.
type lazy struct{ *memory.Store }

func (lazy) ExpireIf(context.Context, string, string, time.Duration) (bool, error) { return true, nil }
func (lazy) Renew(context.Context, string, string, time.Duration) (bool, error)    { return true, nil }

func TestARenewalThatDoesNothingIsFound(t *testing.T) {
	_, wrong := played(t, Campaign{Violated: true, Rounds: 1, Grants: 20, Faults: []Fault{None}}, lazy{memory.New()})
	mustFind(t, wrong)
}

// falling gives numbers that fall.
type falling struct {
	*memory.Store
	last *atomic.Uint64
}

func (f falling) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	r, err := f.Store.SetNXNumbered(ctx, key, value, ttl, t)
	if r.OK {
		r.Fence = f.last.Add(^uint64(0))
	}
	return r, err
}

func TestNumbersThatFallAreFound(t *testing.T) {
	store := falling{memory.New(), new(atomic.Uint64)}
	store.last.Store(1 << 40)
	cells, wrong := played(t, Campaign{Rounds: 1, Strategies: []Strategy{Fenced}, Faults: []Fault{None}}, store)
	if cells[0].Verdict() != matrix.Inverted || len(wrong(false)) != 1 {
		t.Errorf("%v, %v; want numbers that fell, and a complaint", cells[0], wrong(false))
	}
}

// failing answers nothing but errors while it is down.
type failing struct {
	backends.Store
	down *atomic.Bool
}

func (f failing) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if f.down.Load() {
		return backends.Result{}, errors.New("the server is down")
	}
	return f.Store.SetNX(ctx, key, value, ttl)
}

func TestATimeWithoutGrantsIsMeasured(t *testing.T) {
	store := failing{struct{ backends.Store }{memory.New()}, new(atomic.Bool)}
	const away = 10 * ttl
	cells, _ := played(t, Campaign{Rounds: 1, Strategies: []Strategy{Single}, Faults: []Fault{{"down", func(*Crew) {
		store.down.Store(true)
		time.Sleep(away)
		store.down.Store(false)
	}}}}, store)
	if down := cells[0].Down; cells[0].Verdict() != matrix.Unavailable || down < away-3*ttl || down > away+3*ttl {
		t.Errorf("%v; want about %v", cells[0], away)
	}
}

func TestWhatAStoreDoesNotCarryIsLeftOut(t *testing.T) {
	cells, _ := played(t, Campaign{Rounds: 1, Faults: []Fault{None}}, struct{ backends.Store }{memory.New()})
	var names []string
	for _, cell := range cells {
		names = append(names, cell.Strategy)
	}
	if got := strings.Join(names, " "); got != "single" {
		t.Errorf("over a backends.Store alone: %q; want single", got)
	}
}

func TestACellCountsEachTenureOfItsFaultOnce(t *testing.T) {
	phases := Phases{{"first", 10}, {"second", 20}, {"first", 30}}
	var all []Tenure
	for _, at := range []int64{5, 10, 15, 20, 29, 30, 99} {
		all = append(all, Tenure{Answered: at})
	}
	found := []Violation{{At: 5}, {At: 15}, {At: 15}, {At: 29}, {At: 99}, {At: 99, Inverted: true}}
	for fault, want := range map[string]matrix.Cell{
		"first": {Trials: 4, Violations: 2, Inverted: 1}, "second": {Trials: 2, Violations: 1}, "third": {},
	} {
		want.Fault = fault
		if got := phases.Cell(matrix.Cell{Fault: fault}, all, found); got != want {
			t.Errorf("%s: %+v; want %+v", fault, got, want)
		}
	}
}

// The release of the first hold was lost, so the store has it still when its owner takes the lock again.
func TestOnlyAnotherOwnerViolatesALockThatNests(t *testing.T) {
	first := Tenure{Who: "rival 0", Key: "reentrant", Group: "hold", Owner: "a", Answered: 10, Until: 100}
	again := Tenure{Who: "rival 0", Key: "reentrant", Group: "hold", Owner: "a", Answered: 20, Until: 120}
	other := Tenure{Who: "rival 0", Key: "reentrant", Group: "hold", Owner: "b", Answered: 110, Until: 200}
	if found := Reentrant.judge([]Tenure{first, again}); len(found) > 0 {
		t.Errorf("two holds of one owner: %v", found)
	}
	if found := Reentrant.judge([]Tenure{first, again, other}); len(found) != 1 {
		t.Errorf("a hold of another owner: %v; want one violation", found)
	}
	again.Released = 105
	if found := Reentrant.judge([]Tenure{first, again, other}); len(found) > 0 {
		t.Errorf("after an early release: %v", found)
	}
	other.Answered = 103
	if found := Reentrant.judge([]Tenure{first, again, other}); len(found) != 1 {
		t.Errorf("after the end of the first hold alone: %v; want one violation", found)
	}
}
