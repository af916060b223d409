package matrix_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

func TestACommandRunsOneTestAndNothingBeside(t *testing.T) {
	for name, want := range map[string]string{
		"TestX":                       "go test ./p -run '^TestX$' -v",
		"TestX/redlock 2 of 3, on 2":  "go test ./p -run '^TestX$/^redlock_2_of_3,_on_2$' -v",
		"TestX/redlock-5/3 (numbers)": `go test ./p -run '^TestX$/^redlock-5$/^3_\(numbers\)$' -v`,
	} {
		if got := matrix.Command("./p", name, "-v"); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

// witness is a test that may fail.
type witness struct {
	testing.TB
	name     string
	errors   int
	reported []string
}

func (w *witness) Helper()                {}
func (w *witness) Name() string           { return w.name }
func (w *witness) Errorf(string, ...any)  { w.errors++ }
func (w *witness) Attr(key, value string) { w.reported = append(w.reported, key+" "+value) }

func TestATestFailsIfTheCommandOfItsCellDoesNotRunIt(t *testing.T) {
	for _, c := range []struct {
		test, command string
		runs          bool
	}{
		{"TestX", matrix.Command("./p", "TestX"), true},
		{"TestX/single", matrix.Command("./p", "TestX/single"), true},
		{"TestX/single/go-redis", matrix.Command("./p", "TestX/single"), true},
		{"TestX/redlock_2_of_3", matrix.Command("./p", "TestX/redlock 2 of 3"), true},
		{"TestX", matrix.Command("./p", "TestX/single"), true}, // it reports for its subtests
		{"TestX", "go test ./p -run X -v", true},
		{"TestY", matrix.Command("./p", "TestX") + "; " + matrix.Command("./p", "TestY"), true},

		{"TestX/single,_without_scripts", matrix.Command("./p", "TestX/single"), false},
		{"TestX", "go test ./p -run Replay -v", false},
		{"TestX", "go test ./p -run 'X('", false},
		{"TestX", "go test ./p", false},
		{"TestX", "", false},
	} {
		w := &witness{name: c.test}
		matrix.Cell{Strategy: "single", Fault: "none", Trials: 1, Command: c.command}.Report(w)
		if (w.errors == 0) != c.runs || len(w.reported) != 1 {
			t.Errorf("%s reports a cell with %q: %d errors, %d reports; want it accepted: %v", c.test, c.command, w.errors, len(w.reported), c.runs)
		}
	}
}
