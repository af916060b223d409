package backendtest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestFaultyWithoutFaultsKeepsTheContract(t *testing.T) {
	wrapped := func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return Faulty(m), m
	}
	Run(t, Harness{New: wrapped})
	t.Run("in fake time", func(t *testing.T) {
		Run(t, Harness{New: wrapped, Bubble: true, Resolution: time.Nanosecond})
	})
}

func TestHarnessForAStoreThatCannotWatchOrTellTheTimeLeft(t *testing.T) {
	Run(t, Harness{Bubble: true, NoWatch: true, NoLeft: true, New: func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return double{Store: m, watch: unsupported, setNX: withoutLeft(m)}, m
	}})
}

// A sentence that no store can break says nothing.
func TestEverySentenceFailsForAStoreThatBreaksIt(t *testing.T) {
	broken := make(map[string]bool)
	for _, d := range doubles {
		broken[d.breaks] = true
		t.Run(d.bug, func(t *testing.T) {
			failures := judge(t, d)
			if len(failures) == 0 {
				t.Fatalf("no failure of: %s", d.breaks)
			}
			t.Log(failures[0])
		})
	}
	for _, h := range []Harness{{}, {NoWatch: true}} {
		for _, s := range h.sentences() {
			if !broken[s.says] {
				t.Errorf("no store here breaks: %s", s.says)
			}
		}
	}
}

// judge returns what the sentence that d is said to break reports of it.
func judge(t *testing.T, d brokenStore) (failures []string) {
	h := Harness{Bubble: true, NoWatch: d.noWatch, NoLeft: d.noLeft}
	h.New = func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return d.store(m), m
	}
	for _, s := range h.sentences() {
		if s.says != d.breaks {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{T: t}
			x := newFixture(t, r, h)
			done := make(chan struct{})
			go func() { // for Fatalf to end
				defer close(done)
				s.holds(x)
			}()
			<-done
			failures = r.failures
		})
		return failures
	}
	t.Fatalf("there is no such sentence: %s", d.breaks)
	return nil
}

// recorder is a *testing.T that does not mind failures.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// What Run itself does with a failure shows only in a test that fails, so that one runs in a process of its own.
func TestRunFailsByTheNameOfTheSentence(t *testing.T) {
	const asked = "BACKENDTEST_BROKEN_STORE"
	if mode := os.Getenv(asked); mode != "" {
		Run(t, Harness{Bubble: mode == "bubble", New: func(*testing.T) (backends.Store, Outside) {
			m := memory.New()
			return double{Store: m, deleteIf: deleteAnything(m)}, m
		}})
		return
	}
	for _, mode := range []string{"bubble", "real"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), asked+"="+mode)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: a store that deletes anything passes:\n%s", mode, out)
		}
		failed := "--- FAIL: " + t.Name() + "/DeleteIf_on_another_value_says_false_and_changes_nothing"
		if !strings.Contains(string(out), failed) {
			t.Errorf("%s: no line %q in:\n%s", mode, failed, out)
		}
	}
}
