package simulation

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Verdict is what becomes of a lock under a fault, in a letter: that of the anomaly matrix.
type Verdict string

// The verdicts.
const (
	Safe        Verdict = "S" // no two held at once, and nobody waited longer than for the lease of a dead owner
	Unavailable Verdict = "U" // no two held at once, but somebody waited longer
	Inverted    Verdict = "N" // no two held at once, but numbers fell
	Violated    Verdict = "V" // two held at once
)

// A Cell is what many schedules of one strategy under one fault have shown.
type Cell struct {
	Strategy    Strategy
	Fault       Fault
	Verdict     Verdict
	Schedules   int
	Grants      int
	Violated    map[Invariant]int // schedules that violate it
	Early       int               // holds that were lost to a wall clock before they expired
	Unavailable time.Duration     // the longest time in which somebody asked for a key and nobody had it
	Command     string            // plays these schedules again
	Replay      string            // plays the worst of them: the first that made the verdict, or the longest wait

	first map[Invariant]string // what was violated first, and how to replay it
}

// deadOwner is how long nobody can have the lock of an owner who has just died, and a few round trips.
const deadOwner = maxTTL + pollCap + 100*time.Millisecond

// Matrix plays n schedules of each cell of a fault, whose seeds count from seed, and judges what
// they show. If a strategy or a fault is named, it leaves out all others.
func Matrix(t *testing.T, n func(Fault) int, seed uint64, strategy, fault string) []Cell {
	return each(t, strategy, fault, func(t *testing.T, s Strategy, f Fault) Cell {
		c := RunCell(t, s, f, n(f), seed)
		c.Judge(t)
		return c
	})
}

// each makes the cells, several at once.
func each(t *testing.T, strategy, fault string, run func(*testing.T, Strategy, Fault) Cell) []Cell {
	var mu sync.Mutex
	var cells []Cell
	t.Run("cells", func(t *testing.T) {
		for _, s := range Strategies() {
			for _, f := range Faults() {
				if strategy != "" && strategy != s.Name || fault != "" && fault != string(f) {
					continue
				}
				t.Run(s.Name+" under "+string(f), func(t *testing.T) {
					t.Parallel()
					c := run(t, s, f)
					mu.Lock()
					defer mu.Unlock()
					cells = append(cells, c)
				})
			}
		}
	})
	slices.SortFunc(cells, func(a, b Cell) int { return a.row() - b.row() })
	return cells
}

// row returns where the cell stands in the matrix.
func (c Cell) row() int {
	strategy := slices.IndexFunc(Strategies(), func(s Strategy) bool { return s.Name == c.Strategy.Name })
	return strategy*len(Faults()) + slices.Index(Faults(), c.Fault)
}

// atLeast is how many schedules a cell may take to show what it must.
const atLeast = 120

// RunCell plays n schedules, whose seeds count from seed; and more until all has been seen that
// must be, up to thirty times as many.
func RunCell(t *testing.T, s Strategy, f Fault, n int, seed uint64) Cell {
	c := newCell(s, f)
	for c.Schedules < n || c.unseen() && c.Schedules < max(30*n, atLeast) {
		c.play(t, seed)
	}
	c.Command = fmt.Sprintf("go test ./internal/verify/simulation -run Promises -v -strategy %s -fault %s -schedules %d -seed %d",
		s.Name, f, c.Schedules, seed)
	return c
}

func newCell(s Strategy, f Fault) Cell {
	return Cell{Strategy: s, Fault: f, Verdict: Safe, Violated: map[Invariant]int{}, first: map[Invariant]string{}}
}

// play plays the next schedule.
func (c *Cell) play(t *testing.T, seed uint64) {
	schedule := Schedule{Strategy: c.Strategy, Fault: c.Fault, Seed: seed + uint64(c.Schedules)}
	c.add(schedule, schedule.Run(t))
}

func (c *Cell) add(s Schedule, h *History) {
	c.Schedules++
	c.Grants += len(h.Holds)
	c.Early += h.overEarly()
	var seen []Invariant
	for _, v := range h.Check() {
		if slices.Contains(seen, v.Invariant) {
			continue
		}
		seen = append(seen, v.Invariant)
		if c.Violated[v.Invariant]++; c.Violated[v.Invariant] == 1 {
			c.first[v.Invariant] = fmt.Sprintf("%s\n\treplay: %s", v, s.Command())
		}
	}
	_, longest := h.Unavailable()
	unavailable := longest.length()
	verdict := Safe
	switch {
	case slices.Contains(seen, ME):
		verdict = Violated
	case slices.Contains(seen, FENCE):
		verdict = Inverted
	case unavailable > s.Strategy.deadOwner() || slices.Contains(seen, LIVE):
		verdict = Unavailable
	}
	if worse := verdict.rank() - c.Verdict.rank(); c.Replay == "" || worse > 0 || worse == 0 && verdict.rank() <= Unavailable.rank() && unavailable > c.Unavailable {
		c.Verdict, c.Replay = verdict, s.Command()
	}
	c.Unavailable = max(c.Unavailable, unavailable)
}

func (v Verdict) rank() int { return slices.Index([]Verdict{Safe, Unavailable, Inverted, Violated}, v) }

// unseen: something is still to be shown.
func (c *Cell) unseen() bool {
	return c.missing() != nil || c.Early == 0 && Expect(c.Strategy, c.Fault).Early
}

// missing are the invariants that no schedule has violated, and one should.
func (c *Cell) missing() (invariants []Invariant) {
	for _, i := range Expect(c.Strategy, c.Fault).Breaks {
		if c.Violated[i] == 0 {
			invariants = append(invariants, i)
		}
	}
	return invariants
}

// Judge fails the test if the cell is not what is expected.
func (c *Cell) Judge(t *testing.T) {
	t.Helper()
	c.judgeWhatMustHold(t)
	e := Expect(c.Strategy, c.Fault)
	if m := c.missing(); m != nil {
		t.Errorf("none of %d schedules violates %v: the experiment shows nothing", c.Schedules, m)
	}
	if c.Early == 0 && e.Early {
		t.Errorf("none of %d holds was lost to a wall clock: the experiment shows nothing", c.Grants)
	}
}

// judgeWhatMustHold fails the test if a schedule shows what none may show.
func (c *Cell) judgeWhatMustHold(t *testing.T) {
	t.Helper()
	e := Expect(c.Strategy, c.Fault)
	for _, i := range Invariants() {
		if c.Violated[i] > 0 && !slices.Contains(e.Breaks, i) && !slices.Contains(e.MayBreak, i) {
			t.Errorf("%d of %d schedules violate what must hold. The first: %s", c.Violated[i], c.Schedules, c.first[i])
		}
	}
	if c.Early > 0 && !e.Early {
		t.Errorf("%d of %d holds were lost to a wall clock that nobody has set", c.Early, c.Grants)
	}
	if e.Within > 0 && c.Unavailable > e.Within {
		t.Errorf("nobody could have a key for %v; expected at most %v\n\treplay: %s", c.Unavailable, e.Within, c.Replay)
	}
}

// String is a line of a table.
func (c *Cell) String() string {
	line := fmt.Sprintf("%-18s %-10s %s  %6d schedules %7d grants, unavailable for %5.2fs", c.Strategy.Name, c.Fault, c.Verdict, c.Schedules, c.Grants, c.Unavailable.Seconds())
	if c.Early > 0 {
		line += fmt.Sprintf(", %d lost to the wall clock", c.Early)
	}
	for _, i := range Invariants() {
		if n := c.Violated[i]; n > 0 {
			line += fmt.Sprintf(", %s %d", i, n)
		}
	}
	return line
}
