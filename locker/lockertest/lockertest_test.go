package lockertest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/child"
)

func fresh(*testing.T) (locker.Locker, Disturber) {
	r := newReference()
	return r, r
}

func TestReferenceKeepsTheContract(t *testing.T) {
	Run(t, Harness{MaxTTL: time.Hour, New: func(*testing.T) (locker.Locker, Disturber) {
		r := newReference()
		r.maxTTL = time.Hour
		return r, r
	}})
	t.Run("in fake time", func(t *testing.T) { Run(t, Harness{New: fresh, Bubble: true}) })
}

func TestHarnessForALockerThatCannotWatchTellTheTimeLeftOrMoveAHold(t *testing.T) {
	Run(t, Harness{Bubble: true, NoWatch: true, NoLeft: true, NoTransfer: true, New: func(*testing.T) (locker.Locker, Disturber) {
		r := newReference()
		acquire := changeHeld(r, func(held *locker.HeldError) { held.Left = 0 })
		return double{Locker: r, watch: unsupported, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
			if err := req.Validate(); err != nil {
				return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
			}
			return acquire(ctx, req)
		}, transfer: func(context.Context, string, contract.Request) (contract.Lease, error) {
			return contract.Lease{}, contract.ErrNoTransfer
		}}, r
	}})
}

func TestHarnessIsChecked(t *testing.T) {
	for _, c := range []struct {
		h    Harness
		want string
	}{
		{Harness{}, "Harness.New is nil"},
		{Harness{New: fresh, Except: []string{"a lock is free"}}, `Harness.Except names "a lock is free", which is no sentence`},
	} {
		if _, _, err := c.h.plan(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v; want %q", err, c.want)
		}
	}
}

func TestSentencesThatDoNotRunAreListedWithTheReason(t *testing.T) {
	const notPromised = "a second Release matches ErrLost"
	run, skipped, err := Harness{New: fresh, Except: []string{notPromised}, NoForeign: true}.plan()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"not promised: " + notPromised}
	for _, s := range sentences {
		if slices.Contains(s.needs, foreign) {
			want = append(want, "the harness cannot store foreign values: "+s.says)
		}
	}
	slices.Sort(want)
	slices.Sort(skipped)
	if !slices.Equal(skipped, want) || len(want) < 2 {
		t.Errorf("skipped %q; want %q", skipped, want)
	}
	if len(run)+len(skipped) != len(sentences) {
		t.Errorf("%d sentences run and %d do not, of %d", len(run), len(skipped), len(sentences))
	}
}

func TestSentencesAreUniqueAndNeedWhatTheyUse(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sentences {
		if seen[s.says] {
			t.Errorf("twice: %s", s.says)
		}
		seen[s.says] = true
		used := map[need]bool{}
		synctest.Test(t, func(t *testing.T) {
			r := newReference()
			h := Harness{Bubble: true, New: func(*testing.T) (locker.Locker, Disturber) { return r, recording{r, used} }}
			run(s, newFixture(t, &recorder{T: t}, h, s))
		})
		for _, d := range s.needs {
			if !used[d] {
				t.Errorf("%q needs %s and does not use it", s.says, d)
			}
		}
	}
}

// recording notes which needs a sentence uses. A sentence disturbs from one goroutine.
type recording struct {
	*reference
	used map[need]bool
}

func (r recording) SetForeign(key string) { r.used[foreign] = true; r.reference.SetForeign(key) }
func (r recording) SetOther(key string)   { r.used[foreign] = true; r.reference.SetOther(key) }
func (r recording) Evict(key, by string)  { r.used[evicts] = true; r.reference.Evict(key, by) }

func (r recording) Fault(op Op, f backendtest.Fault) {
	r.used[faults] = r.used[faults] || f != nil
	r.reference.Fault(op, f)
}

func (r recording) FaultOnce(op Op, f ...backendtest.Fault) {
	r.used[faults] = true
	r.reference.FaultOnce(op, f...)
}

// A sentence that no double can break proves nothing.
func TestEverySentenceFailsForALockerThatBreaksIt(t *testing.T) {
	broken := map[string]bool{}
	for _, d := range doubles {
		t.Run(d.bug, func(t *testing.T) {
			for _, says := range d.breaks {
				broken[says] = true
				i := slices.IndexFunc(sentences, func(s sentence) bool { return s.says == says })
				if i < 0 {
					t.Errorf("there is no such sentence: %s", says)
					continue
				}
				failures := judge(t, d, sentences[i])
				if len(failures) == 0 {
					t.Errorf("no failure of: %s", says)
					continue
				}
				t.Logf("%s: %s", says, failures[0])
			}
		})
	}
	for _, s := range sentences {
		if !broken[s.says] && unbreakable[s.says] == "" {
			t.Errorf("no double breaks: %s", s.says)
		}
	}
	for says := range unbreakable {
		if broken[says] {
			t.Errorf("listed as unbreakable, and broken: %s", says)
		}
		if !slices.ContainsFunc(sentences, func(s sentence) bool { return s.says == says }) {
			t.Errorf("there is no such sentence: %s", says)
		}
	}
}

// judge returns the failures of a sentence for d.
func judge(t *testing.T, d broken, s sentence) (failures []string) {
	h := Harness{Bubble: true, NoWatch: d.noWatch, NoLeft: d.noLeft, NoTransfer: d.noTransfer}
	h.New = func(*testing.T) (locker.Locker, Disturber) {
		r := newReference()
		if d.locker == nil {
			return r, r
		}
		return d.locker(r), r
	}
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{T: t}
		x := newFixture(t, rec, h, s)
		if d.client != nil {
			x.options = append(x.options, locker.WithMiddleware(d.client))
		}
		x.options = append(x.options, d.options...)
		run(s, x)
		rec.mu.Lock()
		defer rec.mu.Unlock()
		failures = slices.Clone(rec.failures)
	})
	return failures
}

// run gives the sentence a goroutine, which Fatalf ends.
func run(s sentence, x *fixture) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.holds(x)
	}()
	<-done
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

// A failure of Run fails the test. So the test with a broken Locker runs in another process.
func TestRunFailsByTheNameOfTheSentence(t *testing.T) {
	const asked = "LOCKERTEST_BROKEN_LOCKER"
	mode := os.Getenv(asked)
	if mode != "" {
		Run(t, Harness{Bubble: mode == "bubble", New: func(*testing.T) (locker.Locker, Disturber) {
			r := newReference()
			return anyoneReleases(r), r
		}})
		return
	}
	for _, mode := range []string{"bubble", "real"} {
		out, err := child.Command(t, t.Name()+"$/^a_stale_Release.*", asked+"="+mode).CombinedOutput()
		if err == nil {
			t.Errorf("%s: a Locker that lets anyone release passes:\n%s", mode, out)
		}
		failed := "--- FAIL: " + t.Name() + "/a_stale_Release_matches_ErrLost_and_leaves_the_lease_of_the_next_holder_alone"
		if !strings.Contains(string(out), failed) {
			t.Errorf("%s: no line %q in:\n%s", mode, failed, out)
		}
	}
}
