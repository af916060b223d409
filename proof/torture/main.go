// Torture runs tests in full size, shows their progress, and ends with the anomaly matrix: the
// verdict of each strategy under each fault.
//
//	go run ./proof/torture [-html FILE] [-matrix FILE] [-docs FILE] [-by COMMAND] [-keep] -- ARGUMENTS OF GO TEST [-- ARGUMENTS OF GO TEST]...
//
// `make torture` and `make matrix` call it. Each -- begins another run of `go test`, which -C
// backends/pgx does in that module; the matrix has the cells of all runs. This program only reads the
// output of `go test -json`, in which tests report cells (package matrix). Unless a test has failed, it
// writes the whole matrix into the file of -matrix; with -keep, the cells stay there that this run does
// not report. With -docs it also puts the cells that docs/matrix.md shows between their marks.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

func main() {
	var to output
	flag.StringVar(&to.html, "html", "", "write the matrix as a page to this `file`")
	flag.StringVar(&to.whole, "matrix", "", "write the matrix with its commands into this `file`")
	flag.StringVar(&to.docs, "docs", "", "put the cells that it shows between the marks in this `file`")
	flag.StringVar(&to.by, "by", "go run ./proof/torture", "the `command` that makes the matrix again")
	flag.BoolVar(&to.keep, "keep", false, "with -matrix, leave the cells there that this run does not report")
	flag.Usage = func() {
		fmt.Println("usage: torture [-html FILE] [-matrix FILE] [-docs FILE] [-by COMMAND] [-keep] -- ARGUMENTS OF GO TEST [-- ARGUMENTS OF GO TEST]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, runs(flag.Args()), to)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

// output is where the matrix goes besides standard output.
type output struct {
	html, whole, docs string
	by                string // the command that makes it again
	keep              bool   // the cells in whole that are not made again
}

// runs splits the arguments at each --.
func runs(args []string) [][]string {
	all := [][]string{nil}
	for _, arg := range args {
		if arg == "--" {
			all = append(all, nil)
		} else {
			all[len(all)-1] = append(all[len(all)-1], arg)
		}
	}
	return all
}

// run goes on when a test has failed, for the results of the others.
func run(ctx context.Context, out io.Writer, runs [][]string, to output) error {
	made := made(to.by) // before the tests, while the tree is what they run
	p := newProgress(out, time.Now())
	var table matrix.Table
	var failed []error
	for _, args := range runs {
		if ctx.Err() == nil {
			failed = append(failed, test(ctx, args, p, &table))
		}
	}
	p.end()
	if err := table.Text(out); err != nil {
		return err
	}
	if to.html != "" {
		if err := writePage(to.html, made+libraries(), &table); err != nil {
			return err
		}
	}
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		return fmt.Errorf("after %v: %w", time.Since(p.began).Round(time.Second), err)
	}
	// The results of a run that failed are not to be quoted.
	if to.docs != "" {
		if err := publish(out, to.docs, made, &table); err != nil {
			return err
		}
	}
	if to.whole != "" { // last, since it adds the cells that are kept
		return keep(to.whole, made+libraries(), to.keep, &table)
	}
	return nil
}

// command returns the arguments of go. Of those of go test, -C with a directory must stay the
// first: it runs the tests of another module.
func command(args []string) []string {
	first := 0
	if len(args) > 1 && args[0] == "-C" {
		first = 2
	}
	// -count: no result of another day
	return slices.Concat([]string{"test"}, args[:first], []string{"-json", "-count=1"}, args[first:])
}

// test does one run of go test.
func test(ctx context.Context, args []string, p *progress, table *matrix.Table) error {
	cmd := exec.CommandContext(ctx, "go", command(args)...)
	cmd.Env = append(os.Environ(), "LOCKSTEP_TORTURE=1")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	wrong := follow(bufio.NewReader(events), p, table)
	if err := cmd.Wait(); err != nil {
		return errors.Join(wrong, fmt.Errorf("go test %s: %w", strings.Join(args, " "), err))
	}
	return wrong
}

func writePage(file, made string, table *matrix.Table) error {
	var page strings.Builder
	if err := table.Page(&page, "What each strategy did under each fault", made); err != nil {
		return err
	}
	return write(file, page.String())
}
