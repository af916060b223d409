// Runs carries out the runs of tests that have names (package ledger), and makes the anomaly
// matrix: the verdict of each strategy under each fault.
//
//	go run ./proof/runs landing PART...                 in a small size, with cached results: make test
//	go run ./proof/runs nightly [-count N] PART...      in full size: make nightly
//	go run ./proof/runs parts [-n]                      lists the parts of nightly, with -n their commands
//	go run ./proof/runs only                            lists what only nightly finds, and by which tests
//	go run ./proof/runs test ARGUMENTS OF GO TEST       one run of go test, whose skips the ledger must expect
//	go run ./proof/runs update                          writes the names of the tests into the ledger
//	go run ./proof/runs date                            gives each file a time that its content decides: .ci/run
//	go run ./proof/runs matrix [-html FILE] [-matrix FILE] [-docs FILE] [-by COMMAND] [-keep] -- ARGUMENTS OF GO TEST [-- ARGUMENTS OF GO TEST]...
//
// `make test`, `make nightly` and `make matrix` call it. It reads the output of `go test -json`,
// and prints the output of tests that fail. A part of a run also fails if a test skips although the
// ledger does not expect it. At its end it says how long it took, and how much CPU time.
//
// Tests report cells (package matrix). A part of nightly whose tests do writes its cells into
// artefacts/nightly/PART.md. Each -- of matrix begins another `go test`, which -C backends/pgxstore does
// in that module; the matrix has the cells of all. Unless a test has failed, it writes the whole
// matrix into the file of -matrix; with -keep, the cells stay there that this run does not report.
// With -docs it also puts the cells that docs/matrix.md shows between their marks.
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

	"github.com/lockstep-go/lockstep/proof/ledger"
	"github.com/lockstep-go/lockstep/proof/matrix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := do(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runs:", err)
		os.Exit(1)
	}
}

func do(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("say landing, nightly, parts, only, test, update, date or matrix")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case string(ledger.Landing):
		return parts(ctx, out, ledger.Landing, args[1:], nil)
	case string(ledger.Nightly):
		count := flags.Int("count", 1, "how often each test runs")
		_ = flags.Parse(args[1:]) // it exits
		return parts(ctx, out, ledger.Nightly, flags.Args(), []string{fmt.Sprintf("-count=%d", *count)})
	case "parts":
		commands := flags.Bool("n", false, "list their commands, too")
		_ = flags.Parse(args[1:])
		return list(out, *commands)
	case "only":
		return only(out)
	case "test":
		return once(ctx, out, args[1:])
	case "update":
		return update()
	case "date":
		return date(".")
	case "matrix":
		var to output
		flags.StringVar(&to.html, "html", "", "write the matrix as a page to this `file`")
		flags.StringVar(&to.whole, "matrix", "", "write the matrix with its commands into this `file`")
		flags.StringVar(&to.docs, "docs", "", "put the cells that it shows between the marks in this `file`")
		flags.StringVar(&to.by, "by", "go run ./proof/runs matrix", "the `command` that makes the matrix again")
		flags.BoolVar(&to.keep, "keep", false, "with -matrix, leave the cells there that this run does not report")
		_ = flags.Parse(args[1:])
		book, err := ledger.Read(".")
		if err != nil {
			return err
		}
		return makeMatrix(ctx, out, book, split(flags.Args()), to)
	}
	return fmt.Errorf("there is no %q", args[0])
}

// output is where the matrix goes besides standard output.
type output struct {
	html, whole, docs string
	by                string // the command that makes it again
	keep              bool   // the cells in whole that are not made again
}

// split splits the arguments at each --.
func split(args []string) [][]string {
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

// makeMatrix goes on when a test has failed, for the results of the others. A skip that the ledger does not
// expect fails it.
func makeMatrix(ctx context.Context, out io.Writer, book *ledger.Ledger, runs [][]string, to output) error {
	made := made(to.by) // before the tests, while the tree is what they run
	f := &follower{progress: newProgress(out, time.Now())}
	var failed []error
	for _, args := range runs {
		if ctx.Err() == nil {
			failed = append(failed, test(ctx, slices.Concat([]string{"-count=1"}, args), inFull, f))
		}
	}
	f.progress.end()
	skipped := skips{book: book}
	skipped.add(ledger.Nightly, f.ended)
	failed = append(failed, skipped.print(out, "matrix"))
	if err := f.table.Text(out); err != nil {
		return err
	}
	if to.html != "" {
		if err := writePage(to.html, made+libraries(), &f.table); err != nil {
			return err
		}
	}
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		return fmt.Errorf("after %v: %w", time.Since(f.progress.began).Round(time.Second), err)
	}
	// The results of a run that failed are not to be quoted.
	if to.docs != "" {
		if err := publish(out, to.docs, made, &f.table); err != nil {
			return err
		}
	}
	if to.whole != "" { // last, since it adds the cells that are kept
		return keep(to.whole, made+libraries(), to.keep, &f.table)
	}
	return nil
}

// inFull is what package full reads.
const inFull = "LOCKSTEP_TORTURE=1"

// command returns the arguments of go. Of those of go test, -C with a directory must be the first:
// it runs the tests of another module.
func command(args []string) []string {
	first := []string{}
	if i := slices.Index(args, "-C"); i >= 0 && i+1 < len(args) {
		first, args = args[i:i+2], slices.Concat(args[:i], args[i+2:])
	}
	return slices.Concat([]string{"test"}, first, []string{"-json"}, args)
}

// test does one run of go test, with more variables in its environment.
func test(ctx context.Context, args []string, variables string, f *follower) error {
	ctx, stop := withDisk(ctx, disks(), diskFree)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", command(args)...)
	cmd.Env = append(os.Environ(), strings.Split(variables, "\n")...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	wrong := f.follow(bufio.NewReader(events))
	err = cmd.Wait()
	f.used += used(cmd)
	if err != nil {
		return errors.Join(wrong, fmt.Errorf("go test %s: %w", strings.Join(args, " "), err), context.Cause(ctx))
	}
	return wrong
}

// used is the CPU time of a command that has ended, and of all that it has started and waited for: builds,
// tests and their servers.
func used(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil { // it did not start
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func writePage(file, made string, table *matrix.Table) error {
	var page strings.Builder
	if err := table.Page(&page, "What each strategy did under each fault", made); err != nil {
		return err
	}
	return write(file, page.String())
}
