package simulation

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Verdict is what happens to a lock under a fault, as the letter of the anomaly matrix.
type Verdict string

// The verdicts.
const (
	Safe        Verdict = "S" // no two holders at once, and no wait longer than for a dead holder
	Unavailable Verdict = "U" // no two holders at once, but a longer wait
	Inverted    Verdict = "N" // no two holders at once, but a number that fell
	Violated    Verdict = "V" // two holders at once
)

// A Cell is what many schedules of one strategy under one fault have shown.
type Cell struct {
	Strategy    Strategy
	Fault       Fault
	Verdict     Verdict
	Schedules   int
	Grants      int
	Violated    map[Invariant]int // schedules that violate it
	Early       int               // holds that a wall clock ended before they expired
	Unavailable time.Duration     // the longest time in which a caller wanted a key that nobody had
	Command     string            // plays these schedules again
	Replay      string            // plays the worst: the first with this verdict, or the longest wait

	first   map[Invariant]string // the first violation, and how to replay it
	longest string               // plays the schedule of Unavailable
}

// deadOwner is how long the lock of a holder that dies stays locked, with a few round trips.
const deadOwner = maxTTL + pollCap + 100*time.Millisecond

// Matrix plays n(fault) schedules of each cell, with seeds from seed on, and judges the cells. If a
// strategy or a fault is named, it leaves out all others.
func Matrix(t *testing.T, n func(Fault) int, seed uint64, strategy, fault string) []Cell {
	return each(t, strategy, fault, func(t *testing.T, s Strategy, f Fault) Cell {
		c := RunCell(t, s, f, n(f), seed)
		c.Judge(t)
		return c
	})
}

// each runs all cells, several at once.
func each(t *testing.T, strategy, fault string, run func(*testing.T, Strategy, Fault) Cell) []Cell {
	var mu sync.Mutex
	var cells []Cell
	t.Run("cells", func(t *testing.T) {
		for _, s := range Strategies() {
			for _, f := range Faults() {
				if strategy != "" && strategy != s.Name || fault != "" && fault != string(f) || f == Far && !s.lines() {
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

// atLeast is how many schedules a cell may play to show what it must.
const atLeast = 120

// RunCell plays n schedules, with seeds from seed on. If they do not show all that the cell must
// show, it plays more, up to thirty times as many.
func RunCell(t *testing.T, s Strategy, f Fault, n int, seed uint64) Cell {
	c := newCell(s, f)
	for c.Schedules < n || c.unseen() && c.Schedules < max(30*n, atLeast) {
		c.play(t, seed)
	}
	c.Command = fmt.Sprintf("go test ./proof/simulation -run Promises -v -strategy %s -fault %s -schedules %d -seed %d",
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
	case slices.Contains(seen, c.Strategy.exclusion()):
		verdict = Violated
	case slices.Contains(seen, FENCE) || slices.Contains(seen, RWFENCE):
		verdict = Inverted
	case unavailable > s.Strategy.deadOwner() || slices.Contains(seen, LIVE):
		verdict = Unavailable
	}
	if worse := verdict.rank() - c.Verdict.rank(); c.Replay == "" || worse > 0 || worse == 0 && verdict.rank() <= Unavailable.rank() && unavailable > c.Unavailable {
		c.Verdict, c.Replay = verdict, s.Command()
	}
	if unavailable > c.Unavailable {
		c.Unavailable, c.longest = unavailable, s.Command()
	}
}

func (v Verdict) rank() int { return slices.Index([]Verdict{Safe, Unavailable, Inverted, Violated}, v) }

// unseen tells whether the cell has not shown all that it must.
func (c *Cell) unseen() bool {
	return c.missing() != nil || c.Early == 0 && Expect(c.Strategy, c.Fault).Early
}

// missing returns the invariants that some schedule must violate and none has.
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
		t.Errorf("none of %d schedules violates %v, so the experiment shows nothing", c.Schedules, m)
	}
	if c.Early == 0 && e.Early {
		t.Errorf("a wall clock ended none of %d holds, so the experiment shows nothing", c.Grants)
	}
}

// judgeWhatMustHold fails the test if a schedule shows what none may show.
func (c *Cell) judgeWhatMustHold(t *testing.T) {
	t.Helper()
	e := Expect(c.Strategy, c.Fault)
	for _, i := range Invariants() {
		if c.Violated[i] > 0 && !slices.Contains(e.Breaks, i) && !slices.Contains(e.MayBreak, i) {
			t.Errorf("%d of %d schedules violate an invariant that must hold. The first: %s", c.Violated[i], c.Schedules, c.first[i])
		}
	}
	if c.Early > 0 && !e.Early {
		t.Errorf("a wall clock that did not jump ended %d of %d holds", c.Early, c.Grants)
	}
	if e.Within > 0 && c.Unavailable > e.Within {
		t.Errorf("a key was unavailable for %v; expected at most %v\n\treplay: %s", c.Unavailable, e.Within, c.longest)
	}
}

// String is a line of a table.
func (c *Cell) String() string {
	line := fmt.Sprintf("%-18s %-10s %s  %6d schedules %7d grants, unavailable for %5.2fs", c.Strategy.Name, c.Fault, c.Verdict, c.Schedules, c.Grants, c.Unavailable.Seconds())
	if c.Early > 0 {
		line += fmt.Sprintf(", %d ended by a wall clock", c.Early)
	}
	for _, i := range Invariants() {
		if n := c.Violated[i]; n > 0 {
			line += fmt.Sprintf(", %s %d", i, n)
		}
	}
	return line
}
