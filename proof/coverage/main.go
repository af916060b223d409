// Coverage prints which statements no test has run, from a profile of go test, and checks that the
// documentation lists them with a reason.
//
//	go run ./proof/coverage [-list FILE] coverage.out
//
// `make cover` calls it. It prints the share of each package, and every block that was not run. It
// fails in three cases: a part of the module is below its share; a declaration with such a block is
// not in the section "What no test runs" of FILE; that section lists a declaration that does not
// exist. (`go tool cover -func` knows neither packages nor functions in variables, where the
// sentences of the contracts are.)
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

const module = "github.com/lockstep-go/lockstep/"

// Tests must run at least this percentage of each of these, with the packages below it.
const least = 90

var parts = []string{"locker", "strategies", "backends/redisstore"}

func main() {
	list := flag.String("list", "", "a Markdown `file` with a section \"What no test runs\"")
	flag.Parse()
	report, err := run(".", flag.Arg(0), *list)
	fmt.Print(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

// run reads the sources below root. The report is valid even if there is an error.
func run(root, profile, list string) (report string, err error) {
	blocks, err := read(profile)
	if err != nil {
		return "", err
	}
	reasons := map[string]string{}
	if list != "" {
		if reasons, err = listed(list); err != nil {
			return "", err
		}
	}
	var out strings.Builder
	errs := []error{table(&out, blocks)}
	names, existing := declarations{root: root}, map[string]bool{}
	for _, b := range blocks {
		decl, err := names.of(b)
		if err != nil {
			return "", err
		}
		existing[b.folder()], existing[decl] = true, true
		if b.runs > 0 {
			continue
		}
		fmt.Fprintf(&out, "%s:%d in %s\n", b.file, b.line, decl)
		if list != "" && reasons[decl] == "" && reasons[b.folder()] == "" {
			errs = append(errs, fmt.Errorf("%s:%d is not run, and %s does not list %s", b.file, b.line, list, decl))
		}
	}
	for name := range reasons {
		if !existing[name] {
			errs = append(errs, fmt.Errorf("%s lists %s, which there is not", list, name))
		}
	}
	return out.String(), errors.Join(errs...)
}

// table prints the share of each package. It returns an error for each part that is below its
// share.
func table(out *strings.Builder, blocks []block) (err error) {
	type share struct{ run, all int }
	shares := map[string]share{}
	for _, b := range blocks {
		names := []string{b.folder()}
		for _, part := range parts {
			if b.folder() == part || strings.HasPrefix(b.folder(), part+"/") {
				names = append(names, part+" as a whole")
			}
		}
		for _, name := range names {
			s := shares[name]
			s.all += b.statements
			if b.runs > 0 {
				s.run += b.statements
			}
			shares[name] = s
		}
	}
	percent := func(name string) float64 { return 100 * float64(shares[name].run) / float64(max(shares[name].all, 1)) }
	fmt.Fprintf(out, "%-30s %10s %8s\n", "package", "statements", "run")
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		fmt.Fprintf(out, "%-30s %10d %6.1f %%\n", name, shares[name].all, percent(name))
	}
	out.WriteString("\n")
	for _, part := range parts {
		if s := percent(part + " as a whole"); s < least {
			err = errors.Join(err, fmt.Errorf("%.1f %% of the statements of %s are run; want at least %d", s, part, least))
		}
	}
	return err
}
