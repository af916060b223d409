// Command compare prints a table of all strategies: the commands and round trips of a lock, and what
// becomes of it under each fault. Every cell is a run of proof/laboratory, on servers of its
// own, in which the fault was made to happen; the verdict is computed from who held the lock when.
//
//	go run ./proof/compare                                      embedded servers: nothing to install
//	go run ./proof/compare -servers redis                       redis-server processes: times and strict quarantine too
//	REDIS_ADDR=a:6379,b:6379,c:6379 go run ./proof/compare      your servers; none of them is restarted
//	go run ./proof/compare -only pause -strategy single         one cell, told step by step
//	go run ./proof/compare -html compare.html                   also as a page, with a timeline for each anomaly
//
// It exits with 1 if a cell is not what the tables of anomalies say, or if nothing could be run, such as for want of servers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/proof/laboratory"
	"github.com/lockstep-go/lockstep/proof/laboratory/show"
	"github.com/redis/go-redis/v9/logging"
)

const runLimit = 3 * time.Minute // with servers that are far away

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if laboratory.IsOwner() {
		exitIf(laboratory.Own(os.Stdin, os.Stdout))
		return
	}
	o := laboratory.Options{Environment: os.Getenv("REDIS_ADDR"), Size: laboratory.FullSize}
	flag.StringVar(&o.Servers, "servers", "embedded", "what to lock on: embedded, or redis for redis-server processes")
	flag.StringVar(&o.Only, "only", "", "one column: "+strings.Join(laboratory.Columns(), ", "))
	flag.StringVar(&o.Strategy, "strategy", "", "one row: "+strings.Join(laboratory.RowNames(), ", "))
	html := flag.String("html", "", "write the result to this `file` as a page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	exitIf(show.Run(ctx, os.Stdout, o, *html))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}
