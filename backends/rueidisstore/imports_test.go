package rueidisstore_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestAProgramGetsNoOtherClientLibrary: what the module requires for its tests must not be in a
// program that uses it.
func TestAProgramGetsNoOtherClientLibrary(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "github.com/redis/rueidis") {
		t.Error("rueidis is not in it: the test looks at the wrong thing")
	}
	for _, pkg := range packages {
		for _, unwanted := range []string{"go-redis", "redigo", "miniredis", "opentelemetry", "backends/memory", "lockstep/proof", "testing"} {
			if strings.Contains(pkg, unwanted) {
				t.Errorf("%s is in the program", pkg)
			}
		}
	}
}
