// Package laboratory makes faults happen to strategies on real or embedded servers, and says what became of the lock.
// Nothing in its table is asserted: every cell is a run, on servers of its own, in which the fault was made to happen, and
// what it says was computed from who held the lock when. Command examples/compare shows what it finds.
//
// A scenario plays on a stage. Owners that are killed or stopped are processes of their own: the program calls Own if
// IsOwner says that it is one of them. All others are actors in this process.
package laboratory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options says what is run, and on which servers.
type Options struct {
	Servers, Environment string // REDIS_ADDR wins
	Only, Strategy       string // empty: all
	Size                 Size
}

// A Report is what a run has found.
type Report struct {
	On      string // which servers
	Flags   string // of examples/compare, that choose them
	NoTimes string // why no times were measured; empty: they were
	Took    time.Duration
	Columns []Scenario
	Results []Result
}

// Run plays what is wanted. The error says what kept it from running, or, beside a Report, why keys may be
// left on the servers. Report.Err says whether the cells are as expected.
func Run(ctx context.Context, o Options) (r Report, err error) {
	rows, cells, err := choose(o)
	if err != nil {
		return Report{}, err
	}
	park, err := openPark(o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, park.close()) }()
	began := time.Now()
	results, err := runAll(ctx, park, rows, cells, o)
	if err != nil {
		if ctx.Err() != nil { // then all that failed, failed because of that
			err = context.Cause(ctx)
		}
		return Report{}, err
	}
	return Report{On: park.name, Flags: park.flags, NoTimes: park.noTimes, Took: time.Since(began), Columns: cells, Results: results}, nil
}

// Err tells of cells that are not as docs/safety.md says, and of a run in which nothing ran.
func (r Report) Err() error { return errors.Join(r.fault(Expected), r.nothing()) }

// choose says which rows and columns are wanted.
func choose(o Options) ([]Row, []Scenario, error) {
	wanted, cells := rows, scenarios
	if o.Strategy != "" {
		r, ok := rowNamed(o.Strategy)
		if !ok {
			return nil, nil, fmt.Errorf("no strategy %q: there are %s", o.Strategy, strings.Join(RowNames(), ", "))
		}
		wanted = []Row{r}
	}
	if o.Only != "" && o.Only != SpeedColumn {
		s, ok := scenarioNamed(o.Only)
		if !ok {
			return nil, nil, fmt.Errorf("no column %q: there are %s", o.Only, strings.Join(Columns(), ", "))
		}
		cells = []Scenario{s}
	}
	if o.Only == SpeedColumn {
		cells = nil
	}
	return wanted, cells, nil
}

// fault tells of cells that are not as expected.
func (r Report) fault(want Matrix) error {
	var errs []error
	for _, row := range r.Results {
		for _, c := range row.Cells {
			if w := want[row.Row.Name][c.Scenario.Name]; c.Outcome != w && c.Outcome != NotRun {
				errs = append(errs, fmt.Errorf("%s, %s: %s (%s); docs/safety.md says %s", c.Row, c.Scenario.Name, c.Outcome, c.Detail, w))
			}
		}
	}
	return errors.Join(errs...)
}

// nothing tells why nothing was run, if that is so: a table without a result is not what was asked for.
func (r Report) nothing() error {
	var why []string
	for _, row := range r.Results {
		if row.Speed != nil {
			return nil
		}
		if row.Why != "" {
			why = append(why, row.Why)
		}
		for _, c := range row.Cells {
			switch c.Outcome {
			case None:
			case NotRun:
				why = append(why, c.Detail)
			default:
				return nil
			}
		}
	}
	if len(why) == 0 {
		return nil
	}
	slices.Sort(why)
	return fmt.Errorf("nothing was run: %s", strings.Join(slices.Compact(why), "; "))
}
