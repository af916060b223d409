package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/ledger"
)

// parts does parts of a run, one after the other; without a name, all of them. It goes on when a
// test has failed, for the results of the others.
func parts(ctx context.Context, out io.Writer, run ledger.Run, names, flags []string) error {
	var wanted []ledger.Part
	for _, name := range names {
		i := slices.IndexFunc(ledger.Runs[run], func(p ledger.Part) bool { return p.Name == name })
		if i < 0 {
			return fmt.Errorf("the run %s has no part %q: `make parts` lists those of nightly", run, name)
		}
		wanted = append(wanted, ledger.Runs[run][i])
	}
	if len(names) == 0 {
		wanted = ledger.Runs[run]
	}
	var failed []error
	for _, p := range wanted {
		if ctx.Err() != nil {
			break
		}
		if err := part(ctx, out, run, p, flags); err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", run, p.Name, err))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

func part(ctx context.Context, out io.Writer, run ledger.Run, p ledger.Part, flags []string) error {
	book, variables, err := prepare(ctx)
	if err != nil {
		return err
	}
	packages, err := ledger.Packages(".")
	if err != nil {
		return err
	}
	by := fmt.Sprintf("make nightly PART=%s", p.Name)
	if run == ledger.Nightly {
		_, _ = fmt.Fprintf(out, "%s: %s\n", p.Name, p.Does)
	}
	made := made(by) + libraries()
	f := &follower{progress: newProgress(out, time.Now()), lines: true}
	skipped := skips{book: book}
	var failed []error
	for _, c := range p.Tests {
		if ctx.Err() != nil {
			break
		}
		size, set := run, variables
		if run == ledger.Nightly && c.Small {
			size = ledger.Landing
		} else if run == ledger.Nightly {
			set += "\n" + inFull
		}
		f.ended = nil
		err := test(ctx, slices.Concat(flags, c.Command(packages)), set, f)
		if err == nil {
			err = missing(c, packages, f.ended)
		}
		skipped.add(size, f.ended)
		failed = append(failed, err)
		if run == ledger.Landing {
			failed = append(failed, onlyNightly(book, f.ended))
		}
	}
	failed = append(failed, skipped.print(out, p.Name))
	for _, target := range p.Make {
		if ctx.Err() == nil {
			failed = append(failed, makes(ctx, out, target, f))
		}
	}
	if _, err := fmt.Fprintf(out, "%s: %v, %v of CPU\n", p.Name, time.Since(f.progress.began).Round(time.Second), f.used.Round(time.Second)); err != nil {
		return err
	}
	err = errors.Join(failed...)
	if err == nil && run == ledger.Nightly && len(f.table.Cells()) > 0 {
		return keep("artefacts/nightly/"+p.Name+".md", made, false, &f.table)
	}
	return err
}

// once does one run of go test, as a target of the Makefile asks for it, and compares its skips with
// the ledger.
func once(ctx context.Context, out io.Writer, args []string) error {
	book, variables, err := prepare(ctx)
	if err != nil {
		return err
	}
	run := ledger.Landing
	if slices.Contains(os.Environ(), inFull) {
		run = ledger.Nightly
	}
	f := &follower{progress: newProgress(out, time.Now()), lines: true}
	err = test(ctx, args, variables, f)
	skipped := skips{book: book}
	skipped.add(run, f.ended)
	return errors.Join(err, skipped.print(out, "test"))
}

// prepare returns the ledger, and the variables with which a missing server is a failure, and with which
// the go command takes no result of other versions.
func prepare(ctx context.Context) (book *ledger.Ledger, variables string, err error) {
	versions, err := exec.CommandContext(ctx, ".ci/versions").Output()
	if err != nil {
		return nil, "", fmt.Errorf(".ci/versions: %w", err)
	}
	book, err = ledger.Read(".")
	return book, "LOCKSTEP_REQUIRE_REDIS=1\nLOCKSTEP_SERVERS=" + string(versions), err
}

// makes runs a target of the Makefile.
func makes(ctx context.Context, out io.Writer, target string, f *follower) error {
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, strings.Fields(target)...)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	f.used += used(cmd)
	if err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	return nil
}

// skips are the tests and subtests that have skipped.
type skips struct {
	book   *ledger.Ledger
	number int
	counts map[string]map[string]int // by reason and test
	wrong  []error                   // those that the ledger does not expect
}

func (s *skips) add(run ledger.Run, tests []ended) {
	for _, e := range tests {
		if !e.skipped {
			continue
		}
		name, _, sub := strings.Cut(e.name, "/")
		reason, known := s.book.Reason(e.name, e.reason)
		if !known || !s.book.Expects(run, e.folder, name, reason, !sub) {
			s.wrong = append(s.wrong, fmt.Errorf("%s.%s has skipped, which %s does not expect (%s): %s", e.folder, e.name, ledger.File, reason, e.reason))
			continue
		}
		if s.counts == nil {
			s.counts = map[string]map[string]int{}
		}
		if s.counts[reason] == nil {
			s.counts[reason] = map[string]int{}
		}
		s.counts[reason][e.folder+"."+name]++
		s.number++
	}
}

// print prints how many have skipped, for which reason and which, and returns an error about those
// that the ledger does not expect.
func (s *skips) print(out io.Writer, part string) error {
	for _, reason := range slices.Sorted(maps.Keys(s.counts)) {
		sum, names := 0, []string{}
		for _, name := range slices.Sorted(maps.Keys(s.counts[reason])) {
			sum += s.counts[reason][name]
			names = append(names, fmt.Sprintf("%s %d", name, s.counts[reason][name]))
		}
		_, _ = fmt.Fprintf(out, "%s: %d skipped (%s): %s\n", part, sum, reason, strings.Join(names, ", "))
	}
	_, _ = fmt.Fprintf(out, "%s: %d tests and subtests skipped, %d not expected\n", part, s.number, len(s.wrong))
	return errors.Join(s.wrong...)
}

// missing returns an error about tests that the command selects and that go test, which has passed,
// tells nothing of: no function has such a name any more, or a TestMain ends early.
func missing(c ledger.Tests, packages []ledger.Package, tests []ended) error {
	has := map[string]bool{} // tests, and those of which a subtest has ended
	for _, e := range tests {
		name, _, sub := strings.Cut(e.name, "/")
		has[e.folder+"."+name] = true
		if sub {
			has[e.folder+"."+name+"/"] = true
		}
	}
	var wrong []error
	for _, p := range packages {
		for _, name := range p.Tests {
			runs, subtests := c.Selects(p, name)
			full := p.Folder + "." + name
			switch {
			case !runs || slices.Contains(p.Elsewhere, name):
			case !has[full]:
				wrong = append(wrong, fmt.Errorf("%s has not run", full))
			case subtests && !has[full+"/"]:
				wrong = append(wrong, fmt.Errorf("%s has no subtest that -run %s selects", full, c.Run))
			}
		}
	}
	return errors.Join(wrong...)
}

// onlyNightly returns an error about tests that have run although the ledger gives them to the
// nightly run alone.
func onlyNightly(book *ledger.Ledger, tests []ended) error {
	var wrong []error
	for _, e := range tests {
		if !e.skipped && !strings.Contains(e.name, "/") && book.OnlyNightly(e.folder, e.name) {
			wrong = append(wrong, fmt.Errorf("%s.%s has run, and the ledger gives it to nightly alone", e.folder, e.name))
		}
	}
	return errors.Join(wrong...)
}

// list lists the parts of the nightly run.
func list(out io.Writer, commands bool) error {
	packages, err := ledger.Packages(".")
	if err != nil {
		return err
	}
	for _, p := range ledger.Runs[ledger.Nightly] {
		_, _ = fmt.Fprintf(out, "%-11s %s\n", p.Name, p.Does)
		for _, c := range p.Tests {
			if commands {
				_, _ = fmt.Fprintf(out, "  go %s\n", strings.Join(command(c.Command(packages)), " "))
			}
		}
		for _, target := range p.Make {
			if commands {
				_, _ = fmt.Fprintf(out, "  make %s\n", target)
			}
		}
	}
	return nil
}

// only lists what only the nightly run finds. A test of nightly that no line is about fails the tests.
func only(out io.Writer) error {
	book, err := ledger.Read(".")
	if err != nil {
		return err
	}
	for _, f := range book.Finds {
		_, _ = fmt.Fprintln(out, f.Text)
		for _, name := range book.Only(f) {
			_, _ = fmt.Fprintf(out, "  %s.%s\n", f.Folder, name)
		}
	}
	return nil
}

// update writes the names of the tests into the ledger.
func update() error {
	packages, err := ledger.Packages(".")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(ledger.File)
	if err != nil {
		return err
	}
	updated, err := ledger.Updated(string(text), packages)
	if err != nil {
		return err
	}
	return os.WriteFile(ledger.File, []byte(updated), 0o644)
}
