package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/powercut"
)

// requireEnv decides what happens to a test that needs a program which this machine does not have.
// With "1" the test fails. Otherwise it is left out, and the package says so at its end: see Main.
const requireEnv = "LOCKSTEP_REQUIRE_REDIS"

// VersionsEnv names the variable with the versions of servers and programs, which `make test` sets. To
// read it is all that a test does with it: the go command then takes a cached result only as long as
// the variable has the same value. So whatever runs a program that is not built from this repository reads it.
const VersionsEnv = "LOCKSTEP_SERVERS"

// Require leaves the test out if redis-server is not in PATH.
func Require(tb testing.TB) {
	tb.Helper()
	_ = os.Getenv(VersionsEnv)
	if _, err := exec.LookPath(program); err != nil {
		Missing(tb, "redis-server is not installed")
	}
}

// Missing leaves the test out because this machine lacks what it needs. Under
// LOCKSTEP_REQUIRE_REDIS=1 the test fails.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	_ = os.Getenv(VersionsEnv) // another machine may have it
	what := fmt.Sprintf(format, args...)
	if os.Getenv(requireEnv) == "1" {
		tb.Fatalf("%s, and %s=1 forbids to leave the test out", what, requireEnv)
		return // Fatalf of a recorder returns
	}
	leftOut.note(tb.Name(), what)
	tb.Skipf("LEFT OUT: %s", what)
}

// Main runs the tests of a package, some of which need servers, and returns the exit code for
// TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
// It removes the templates of servers (package daemon). If tests were left out, it prints how many
// and why. The go command shows the output of a package that passes only with -v, so Main writes to
// the terminal as well if there is one.
func Main(m *testing.M) int {
	powercut.Main()
	code := m.Run()
	daemon.RemoveTemplates()
	leftOut.tell(os.Stdout)
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		if terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			leftOut.tell(terminal)
			_ = terminal.Close() // nothing more can be said there
		}
	}
	return code
}

// leftOut are the tests of this process that were left out.
var leftOut tally

type tally struct {
	mu      sync.Mutex
	reasons []string // in the order in which they came
	tests   map[string]map[string]bool
}

func (l *tally) note(test, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tests == nil {
		l.tests = map[string]map[string]bool{}
	}
	if l.tests[reason] == nil {
		l.reasons = append(l.reasons, reason)
		l.tests[reason] = map[string]bool{}
	}
	l.tests[reason][test] = true
}

// tell prints what was left out, if anything was.
func (l *tally) tell(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reasons) == 0 {
		return
	}
	var why []string
	for _, reason := range l.reasons {
		why = append(why, fmt.Sprintf("%d because %s", len(l.tests[reason]), reason))
	}
	_, _ = fmt.Fprintf(w, "LEFT OUT, tests of %s: %s. `make test` installs what they need; with %s=1 they fail instead.\n",
		filepath.Base(os.Args[0]), strings.Join(why, "; "), requireEnv)
}
