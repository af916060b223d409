package repository

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// drains is a test of package plain, the strategy in docs/adding-a-strategy.md. Only the strategy cleans
// up after an attempt whose reply is lost. The store answers the cleanup late.
const drains = `package plain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"` + module + `/backends/backendtest"
	"` + module + `/backends/memory"
	"` + module + `/locker"
	"` + module + `/locker/contract"
)

type middleware struct{ locker.Locker }

func TestDrainWaitsForTheCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, faults := memory.New(), new(backendtest.Faults)
		locks := locker.New(contract.Wrap(New(faults.Store(store)), func(l locker.Locker) locker.Locker { return middleware{l} }))
		faults.Once(backendtest.SetNX, backendtest.LoseReply)
		faults.Set(backendtest.DeleteIf, backendtest.Fail)
		if _, err := locks.Lock(t.Context(), "key"); !errors.Is(err, backendtest.ErrInjected) {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := locks.Drain(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v before the cleanup is answered", err)
		}
		if _, _, found := store.Get("key"); !found {
			t.Fatal("nothing is left to clean up: this test is wrong")
		}
		faults.Clear()
		if err := locks.Drain(t.Context()); err != nil {
			t.Errorf("Drain = %v", err)
		}
		if _, _, found := store.Get("key"); found {
			t.Error("the token is there after Drain")
		}
	})
}
`

// TestAStrategyFromOutsideTakesPartInDrain builds a strategy in a module of its own, where it can't
// import packages that are internal.
func TestAStrategyFromOutsideTakesPartInDrain(t *testing.T) {
	strategy := regexp.MustCompile("(?ms)^```go\n(package plain\n.*?)^```$").FindStringSubmatch(read(t, "../../docs/adding-a-strategy.md"))
	if strategy == nil {
		t.Fatal("docs/adding-a-strategy.md has no package plain")
	}
	dir := consumer(t)
	write(t, filepath.Join(dir, "plain", "plain_test.go"), strategy[1])
	write(t, filepath.Join(dir, "plain", "drain_test.go"), drains)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-run", "TestDrain", "./plain")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDrainWaitsForTheCleanup") {
		t.Errorf("go test: %v\n%s", err, out)
	}
}
