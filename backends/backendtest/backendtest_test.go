package backendtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/proof/child"
)

func TestAStoreWithoutFaultsKeepsTheContract(t *testing.T) {
	inBothTimes(t, "Store", Run, Harness{New: func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return new(Faults).Store(m), m
	}})
	inBothTimes(t, "QueuedStore", RunQueued, QueuedHarness{New: func(*testing.T) (backends.QueuedStore, Outside) {
		m := memory.New()
		return new(Faults).Queued(m), m
	}})
	inBothTimes(t, "NumberedStore", RunNumbered, NumberedHarness{New: func(*testing.T) (backends.NumberedStore, Outside) {
		m := memory.New()
		return new(Faults).Numbered(m), m
	}})
	inBothTimes(t, "NumberedStore without queues", RunNumbered, NumberedHarness{NoQueue: true, New: func(*testing.T) (backends.NumberedStore, Outside) {
		m := memory.New()
		return new(Faults).Numbered(struct{ backends.NumberedStore }{m}), m
	}})
	inBothTimes(t, "FencedStore", RunFenced, FencedHarness{New: func(*testing.T) (backends.FencedStore, Outside) {
		m := memory.New()
		return new(Faults).Fenced(m), m
	}})
	inBothTimes(t, "SharedStore", RunShared, SharedHarness{New: func(*testing.T) (backends.SharedStore, SharedOutside) {
		m := memory.New()
		return new(Faults).Shared(m), m
	}})
	inBothTimes(t, "LegacyStore", RunLegacy, LegacyHarness{New: func(*testing.T) (backends.LegacyStore, Outside) {
		m := memory.New()
		return new(Faults).Legacy(m.Legacy()), m
	}})
}

func inBothTimes[S, O any](t *testing.T, name string, run func(*testing.T, HarnessFor[S, O]), h HarnessFor[S, O]) {
	t.Run(name, func(t *testing.T) { run(t, h) })
	h.Bubble, h.Resolution = true, time.Nanosecond
	t.Run(name+" in fake time", func(t *testing.T) { run(t, h) })
}

func TestHarnessForAStoreThatCannotWatchOrTellTheTimeLeft(t *testing.T) {
	Run(t, Harness{Bubble: true, NoWatch: true, NoLeft: true, New: func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return double{Store: m, watch: unsupported, setNX: withoutLeft(m)}, m
	}})
	RunShared(t, SharedHarness{Bubble: true, NoWatch: true, NoLeft: true, New: func(*testing.T) (backends.SharedStore, SharedOutside) {
		m := memory.New()
		return sharedDouble{Store: m, watch: unsupported, enter: enterWithoutLeft(m)}, m
	}})
}

// A sentence that no store can break proves nothing.
func TestEverySentenceFailsForAStoreThatBreaksIt(t *testing.T) {
	everySentenceFails(t, ofStore, doubles, func(m *memory.Store) Outside { return m })
}

func TestEverySentenceOfQueuedStoresFails(t *testing.T) {
	everySentenceFails(t, ofQueued, queuedDoubles, func(m *memory.Store) Outside { return m })
}

func TestEverySentenceOfNumberedStoresFails(t *testing.T) {
	everySentenceFails(t, ofNumbered, numberedDoubles, func(m *memory.Store) Outside { return m })
}

func TestEverySentenceOfFencedStoresFails(t *testing.T) {
	everySentenceFails(t, ofFenced, fencedDoubles, func(m *memory.Store) Outside { return m })
}

func TestEverySentenceOfSharedStoresFails(t *testing.T) {
	everySentenceFails(t, ofShared, sharedDoubles, func(m *memory.Store) SharedOutside { return m })
}

func TestEverySentenceOfLegacyStoresFails(t *testing.T) {
	everySentenceFails(t, ofLegacy, legacyDoubles, func(m *memory.Store) Outside { return m })
}

func everySentenceFails[S any, O Outside](t *testing.T, c suite[S, O], doubles []broken[S], outside func(*memory.Store) O) {
	breaks := make(map[string]bool)
	for _, d := range doubles {
		breaks[d.breaks] = true
		t.Run(d.bug, func(t *testing.T) {
			failures := judge(t, c, d, outside)
			if len(failures) == 0 {
				t.Fatalf("no failure of: %s", d.breaks)
			}
			t.Log(failures[0])
		})
	}
	for _, h := range []HarnessFor[S, O]{{Bubble: true, Clock: true}, {NoWatch: true, NoQueue: true}} {
		for _, s := range c.sentences(h) {
			if !breaks[s.says] {
				t.Errorf("no double breaks: %s", s.says)
			}
		}
	}
}

// judge returns the failures of the sentence that d breaks.
func judge[S any, O Outside](t *testing.T, c suite[S, O], d broken[S], outside func(*memory.Store) O) (failures []string) {
	h := HarnessFor[S, O]{Bubble: true, Clock: true, NoWatch: d.noWatch, NoLeft: d.noLeft, Beside: d.beside}
	h.New = func(*testing.T) (S, O) {
		m := memory.New()
		return d.store(m), outside(m)
	}
	for _, s := range c.sentences(h) {
		if s.says != d.breaks {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{T: t}
			x := c.fixture(t, r, h)
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

// recorder is a *testing.T that collects failures.
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

// A failure of Run fails the test. So the test with a broken store runs in another process.
func TestRunFailsByTheNameOfTheSentence(t *testing.T) {
	const broken = "BACKENDTEST_BROKEN_STORE"
	deletes := func(*testing.T) (backends.Store, Outside) {
		m := memory.New()
		return double{Store: m, deleteIf: deleteAnything(m)}, m
	}
	overwrites := func(*testing.T) (backends.FencedStore, Outside) { // its numbers are right
		m := memory.New()
		return fencedDouble{Store: m, setNXFenced: func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
			res, err := draw(ctx, m, key, value, ttl, n)
			if present, _, _ := m.Get(key); !res.OK && err == nil {
				m.Set(key, present, ttl)
			}
			return res, err
		}}, m
	}
	bad := func(*testing.T) (backends.QueuedStore, Outside) { // its queues are right
		m := memory.New()
		return queuedDouble{Store: m, setNXQueued: func(ctx context.Context, key, value string, ttl time.Duration, turn backends.Turn) (backends.Result, error) {
			res, err := m.SetNXQueued(ctx, key, value, ttl, turn)
			if present, _, _ := m.Get(key); !res.OK && err == nil && !isReserved(m, key) {
				m.Set(key, present, ttl)
			}
			return res, err
		}}, m
	}
	type mode struct {
		run  func(t *testing.T)
		fail string
	}
	modes := map[string]mode{
		"bubble": {
			func(t *testing.T) { Run(t, Harness{Bubble: true, New: deletes}) },
			"DeleteIf_of_another_value_returns_false_and_changes_nothing",
		},
		"real": {
			func(t *testing.T) { Run(t, Harness{New: deletes}) },
			"DeleteIf_of_another_value_returns_false_and_changes_nothing",
		},
		"Count": {
			func(t *testing.T) { RunFenced(t, FencedHarness{Bubble: true, Clock: true, New: overwrites}) },
			"SetNXFenced_instead_of_SetNX/SetNX_of_a_held_key_leaves_the_value_and_its_expiry_alone",
		},
		"Clock": {
			func(t *testing.T) {
				RunNumbered(t, NumberedHarness{Bubble: true, New: func(t *testing.T) (backends.NumberedStore, Outside) {
					store, outside := overwrites(t)
					return store.(backends.NumberedStore), outside
				}})
			},
			"SetNXNumbered_instead_of_SetNX/SetNX_of_a_held_key_leaves_the_value_and_its_expiry_alone",
		},
	}
	for _, a := range askings {
		modes[a.says] = mode{
			func(t *testing.T) { RunQueued(t, QueuedHarness{Bubble: true, New: bad}) },
			"SetNXQueued_" + strings.ReplaceAll(a.says, " ", "_") + "_instead_of_SetNX/SetNX_of_a_held_key_leaves_the_value_and_its_expiry_alone",
		}
	}
	if mode, ok := modes[os.Getenv(broken)]; ok {
		mode.run(t)
		return
	}
	for name, mode := range modes {
		out, err := child.Command(t, t.Name(), broken+"="+name).CombinedOutput()
		if err == nil {
			t.Errorf("%s: a broken store passes:\n%s", name, out)
		}
		if failed := "--- FAIL: " + t.Name() + "/" + mode.fail; !strings.Contains(string(out), failed) {
			t.Errorf("%s: no line %q in:\n%s", name, failed, out)
		}
	}
}
