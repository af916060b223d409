// Command compare puts all strategies of this module beside each other: what a lock costs under each, and what becomes of
// it when something goes wrong. Nothing in its table is asserted: every cell is a run, on servers of its own, in which the
// fault was made to happen, and what it says was computed from who held the lock when.
//
//	go run ./examples/compare                                      embedded servers: nothing to install
//	go run ./examples/compare -servers redis                       redis-server processes
//	REDIS_ADDR=a:6379,b:6379,c:6379 go run ./examples/compare      your servers; none of them is restarted
//	go run ./examples/compare -only pause -strategy single         one cell, told step by step
//	go run ./examples/compare -html compare.html                   also as a page, with a timeline for each anomaly
//
// It exits with 1 if a cell is not what docs/safety.md says, or if nothing could be run, such as for want of servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

const runLimit = 3 * time.Minute // with servers that are far away

func main() {
	logging.Disable() // of go-redis: its errors come back from the calls as well
	if isOwner() {
		exitIf(own(os.Stdin, os.Stdout))
		return
	}
	o := options{environment: os.Getenv("REDIS_ADDR"), size: fullSize}
	flag.StringVar(&o.servers, "servers", "embedded", "what to lock on: embedded, or redis for redis-server processes")
	flag.StringVar(&o.only, "only", "", "one column: "+strings.Join(columns(), ", "))
	flag.StringVar(&o.strategy, "strategy", "", "one row: "+strings.Join(rowNames(), ", "))
	flag.StringVar(&o.html, "html", "", "write the result to this `file` as a page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	exitIf(run(ctx, os.Stdout, o))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	servers, environment string // REDIS_ADDR wins
	only, strategy       string // empty: all
	html                 string
	size                 size
}

// run is the whole story.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	rows, cells, err := choose(o)
	if err != nil {
		return err
	}
	park, err := openPark(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, park.close()) }()
	began := time.Now()
	results, err := runAll(ctx, park, rows, cells, o)
	if err != nil {
		if ctx.Err() != nil { // then all that failed, failed because of that
			err = context.Cause(ctx)
		}
		return err
	}
	r := report{on: park.name, again: park.flags, slow: park.slow, took: time.Since(began), columns: cells, results: results}
	if err := r.text(out); err != nil {
		return err
	}
	if o.html != "" {
		if err := r.writePage(o.html); err != nil {
			return err
		}
	}
	return errors.Join(r.fault(expected), r.nothing())
}

// choose says which rows and columns are wanted.
func choose(o options) ([]row, []scenario, error) {
	wanted, cells := rows, scenarios
	if o.strategy != "" {
		r, ok := rowNamed(o.strategy)
		if !ok {
			return nil, nil, fmt.Errorf("no strategy %q: there are %s", o.strategy, strings.Join(rowNames(), ", "))
		}
		wanted = []row{r}
	}
	if o.only != "" && o.only != speedColumn {
		s, ok := scenarioNamed(o.only)
		if !ok {
			return nil, nil, fmt.Errorf("no column %q: there are %s", o.only, strings.Join(columns(), ", "))
		}
		cells = []scenario{s}
	}
	if o.only == speedColumn {
		cells = nil
	}
	return wanted, cells, nil
}
