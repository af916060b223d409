// Servers runs the suites on several Redis and Valkey servers, one after the other, and makes the
// table of supported versions.
//
//	go run ./proof/servers [-small] [-table FILE] [-docs FILE | -check FILE] FOLDER...
//
// Each folder has a program named redis-server, as .ci/servers unpacks them; "-" is the redis-server
// in PATH. Unless a suite has failed, it writes the table into the file of -table, and with -docs a list of
// the servers between the marks in that file. With -check it fails if that list lacks one of the servers. `make servers` runs
// everything, and `make test` a small part on the newest servers. Without a folder it fails, unless
// the variable LOCKSTEP_WITHOUT_NEWER_SERVERS is 1.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A suite is a column of the table.
type suite struct {
	name string
	runs []run
}

// A run is one run of go test, in full size or not: see package full.
type run struct {
	module string
	args   string
	full   bool
}

const (
	contract    = " -run ^TestContractOnRedis$/^plain$"
	permissions = " -run ^TestACL|^TestSecurity|^TestDriver$/users|^TestWhatRueidis|^TestRueidis"
	anew        = " -shuffle=on" // take no cached result
)

var (
	all = []suite{
		{"adapters", []run{
			{".", "./backends/goredis ./backends/redigo ./backends/redisstore/... -skip ^TestACL|^TestSecurity" + anew, true},
			{"backends/rueidisstore", "." + anew, true},
		}},
		{"permissions", []run{
			{".", "./backends/goredis ./backends/redigo" + permissions + anew, false},
			{"backends/rueidisstore", "." + permissions + anew, false},
		}},
		{"strategies", []run{{".", "./strategies/... ./locker/..." + anew, false}}},
		{"campaigns", []run{
			{".", "./proof/redistest ./proof/campaign" + anew, false},
			{"proof/differential", "." + anew, false},
		}},
	}
	small = []suite{
		{"adapters", []run{
			{".", "./backends/goredis ./backends/redigo" + contract, false},
			{".", "./backends/redisstore -run ^TestNoKeyEndsEarly", false},
			{"backends/rueidisstore", "." + contract, false},
		}},
		all[1],
	}
)

func main() {
	bounded := flag.Bool("small", false, "run the contract of each adapter and the tests of permissions only")
	whole := flag.String("table", "", "write the table into this `file`")
	docs := flag.String("docs", "", "put a list of the servers between the marks in this `file`")
	check := flag.String("check", "", "fail if the list in this `file` lacks a server")
	flag.Parse()
	suites := all
	if *bounded {
		suites = small
	}
	if err := serve(flag.Args(), suites, *whole, *docs, *check); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

// without says that no server is needed.
const without = "LOCKSTEP_WITHOUT_NEWER_SERVERS"

func serve(folders []string, suites []suite, whole, docs, check string) error {
	by := "make servers"
	if len(suites) < len(all) {
		by = "go run ./proof/servers -small"
	}
	made := made(by) // before the suites, while the tree is what they run
	if len(folders) == 0 {
		if os.Getenv(without) != "1" {
			return fmt.Errorf("no folder of a server is given, so nothing would be tested; .ci/servers prints them (%s=1 makes this pass)", without)
		}
		fmt.Printf("LEFT OUT: the tests on newer servers, since %s is 1\n", without)
		return nil
	}
	path := os.Getenv("PATH")
	var rows []row
	var failed []error
	for _, folder := range folders {
		if folder != "-" {
			if _, err := os.Stat(folder + "/redis-server"); err != nil { // the one in PATH would do instead
				return err
			}
			if err := os.Setenv("PATH", folder+string(os.PathListSeparator)+path); err != nil {
				return err
			}
		}
		server, version, err := redistest.Version()
		if err != nil {
			return err
		}
		r := row{server, version, nil}
		for _, s := range suites {
			verdict := "passed"
			if err := s.test(); err != nil {
				verdict = "FAILED"
				failed = append(failed, fmt.Errorf("%s %s, %s: %w", server, version, s.name, err))
			}
			r.verdicts = append(r.verdicts, verdict)
			fmt.Printf("%s %s: %s %s\n", server, version, s.name, verdict)
		}
		rows = append(rows, r)
		if err := os.Setenv("PATH", path); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\n", table(suites, rows))
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if whole != "" {
		if err := keep(whole, made, table(suites, rows)); err != nil {
			return err
		}
	}
	switch {
	case docs != "":
		return publish(docs, made, list(rows))
	case check != "":
		return lacks(check, rows)
	}
	return nil
}

// test prints what a run has skipped, and its whole output if it has failed. A run without tests has
// failed, too, and so has one with a skip that the ledger does not expect.
func (s suite) test() error {
	for _, r := range s.runs {
		args := []string{"run", "./proof/runs", "test", "-C", r.module, "-vet=off", "-parallel", "16", "-timeout", "30m"}
		cmd := exec.Command("go", append(args, strings.Fields(r.args)...)...)
		if r.full {
			cmd.Env = append(os.Environ(), "LOCKSTEP_TORTURE=1")
		}
		out, err := cmd.CombinedOutput()
		if err == nil && bytes.Contains(out, []byte("[no tests to run]")) {
			err = errors.New("a package has no such tests")
		}
		if err != nil {
			fmt.Printf("%s", out)
			return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, " skipped") {
				fmt.Print(line)
			}
		}
	}
	return nil
}
