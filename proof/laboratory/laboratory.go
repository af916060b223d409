// Package laboratory makes faults happen to strategies on real or embedded servers, and says what became of the lock.
// Nothing in its table is asserted: every cell is a run, on servers of its own, in which the fault was made to happen, and
// what it says was computed from who held the lock when. Command proof/compare shows what it finds.
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
	Flags   string // of proof/compare, that choose them
	NoTimes string // why no times were measured; empty: they were
	Took    time.Duration
	Tables  []Table // those in which something was wanted
}

// A Table has rows that the same can happen to.
type Table struct {
	Title   string
	Columns []Scenario
	Results []Result
}

// tables are all that can be run. Times are measured in the first one only.
var tables = []struct {
	title     string
	rows      *[]Row
	scenarios []Scenario
	measured  bool
}{
	{"Locks", &rows, scenarios, true},
	{"Permits, readers and writers, jobs and leaders, each beside recipes for the same", &togetherRows, togetherScenarios, false},
}

// Run plays what is wanted. The error says what kept it from running, or, beside a Report, why keys may be
// left on the servers. Report.Err says whether the cells are as expected.
func Run(ctx context.Context, o Options) (r Report, err error) {
	wanted, err := choose(o)
	if err != nil {
		return Report{}, err
	}
	park, err := openPark(o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, park.close()) }()
	began := time.Now()
	if err := runAll(ctx, park, wanted, o); err != nil {
		if ctx.Err() != nil { // then all that failed, failed because of that
			err = context.Cause(ctx)
		}
		return Report{}, err
	}
	return Report{On: park.name, Flags: park.flags, NoTimes: park.noTimes, Took: time.Since(began), Tables: wanted}, nil
}

// Err tells of cells that are not as the tables of anomalies say, and of a run in which nothing ran.
func (r Report) Err() error { return errors.Join(r.fault(Expected), r.nothing()) }

// choose says which rows and columns are wanted.
func choose(o Options) (wanted []Table, err error) {
	if _, ok := rowNamed(o.Strategy); !ok && o.Strategy != "" {
		return nil, fmt.Errorf("no strategy %q: there are %s", o.Strategy, strings.Join(RowNames(), ", "))
	}
	if o.Only != "" && !slices.Contains(Columns(), o.Only) {
		return nil, fmt.Errorf("no column %q: there are %s", o.Only, strings.Join(Columns(), ", "))
	}
	for _, t := range tables {
		w := Table{Title: t.title}
		for _, sc := range t.scenarios {
			if o.Only == "" || o.Only == sc.Name {
				w.Columns = append(w.Columns, sc)
			}
		}
		for _, r := range *t.rows {
			if o.Strategy == "" || o.Strategy == r.Name {
				w.Results = append(w.Results, Result{Row: r, measured: t.measured && (o.Only == "" || o.Only == SpeedColumn)})
			}
		}
		if len(w.Results) > 0 && (len(w.Columns) > 0 || w.Results[0].measured) {
			wanted = append(wanted, w)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("%s has no column %q", o.Strategy, o.Only)
	}
	return wanted, nil
}

// fault tells of cells that are not as expected.
func (r Report) fault(want Matrix) error {
	var errs []error
	for _, row := range r.results() {
		for _, c := range row.Cells {
			if w := want[row.Row.Name][c.Scenario.Name]; c.Outcome != w && c.Outcome != NotRun {
				errs = append(errs, fmt.Errorf("%s, %s: %s (%s); the table says %s", c.Row, c.Scenario.Name, c.Outcome, c.Detail, w))
			}
		}
	}
	return errors.Join(errs...)
}

// nothing tells why nothing was run, if that is so: a table without a result is not what was asked for.
func (r Report) nothing() error {
	var why []string
	for _, row := range r.results() {
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

// results are those of all tables.
func (r Report) results() (all []Result) {
	for _, t := range r.Tables {
		all = append(all, t.Results...)
	}
	return all
}
