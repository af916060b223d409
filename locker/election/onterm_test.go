package election_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/lockstep-go/lockstep/locker/election"
)

// followed notes what the hooks of an Election are told, such as "began", "ended resigned after 2s".
type followed struct {
	mu    sync.Mutex
	notes []string
	ends  []election.End
}

func (f *followed) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, text)
}

func (f *followed) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.notes, ", ")
}

func (f *followed) hook(name string) func(context.Context, election.Term) func(election.End) {
	return func(ctx context.Context, t election.Term) func(election.End) {
		began := time.Now()
		f.note(fmt.Sprintf("%sbegan", name))
		if t.Key != key || t.Number == 0 || ctx.Err() != nil {
			f.note(fmt.Sprintf("with %+v under %v", t, ctx))
		}
		return func(end election.End) {
			f.note(fmt.Sprintf("%sended %s after %v", name, end.Reason, end.At.Sub(began).Round(time.Second)))
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ends = append(f.ends, end)
		}
	}
}

func TestAHookLearnsWhenAndWhyATermEnds(t *testing.T) {
	type scene struct {
		*candidate
		ctx  context.Context // of lead
		stop context.CancelCauseFunc
	}
	broken, shutdown := errors.New("broken pipe"), errors.New("shutdown")
	for name, c := range map[string]struct {
		lead func(s scene) error
		want string
		err  error // of the End
	}{
		"lead returns nil":    {func(scene) error { return nil }, "resigned after 2s", nil},
		"lead fails":          {func(scene) error { return broken }, "failed after 2s", broken},
		"lead panics":         {func(scene) error { panic(broken) }, "failed after 2s", nil},
		"lead ends with Exit": {func(scene) error { runtime.Goexit(); return nil }, "failed after 2s", nil},
		"lead fails with the loss of another lock": {
			func(scene) error { return fmt.Errorf("write: %w", locker.ErrLost) }, "failed after 2s", locker.ErrLost,
		},
		"Run is stopped": {func(s scene) error {
			s.stop(shutdown)
			time.Sleep(time.Minute) // it takes its time
			return nil
		}, "stopped after 2s", shutdown},
		"the lock is deleted": {func(s scene) error {
			s.store.Delete(key)
			<-s.ctx.Done()
			time.Sleep(time.Minute)
			return nil
		}, "stolen after 3s", locker.ErrLost}, // a renewal finds it
		"the store does not answer": {func(s scene) error {
			s.faults.Set(backendtest.All, backendtest.Hang)
			time.Sleep(time.Minute) // it does not look at its ctx
			s.faults.Clear()
			return broken // which may follow from the loss
		}, "unavailable after 10s", locker.ErrLost},
		"the process is suspended": {func(s scene) error {
			s.clock.Jump(time.Hour) // the monotonic clock stood still
			return nil
		}, "expired after 2s", locker.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			playFenced(t, func(t *testing.T, s *stage) {
				a, f := s.candidate("a"), &followed{}
				if a.OnTerm(nil).OnTerm(f.hook("")) != a.Election {
					t.Error("OnTerm does not return the Election")
				}
				ctx, cancel := context.WithCancelCause(context.Background())
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					_ = a.Run(ctx, func(leading context.Context, _ election.Term) error {
						if f.all() != "began" {
							<-leading.Done() // the next term
							return nil
						}
						time.Sleep(2 * time.Second)
						return c.lead(scene{a, leading, cancel})
					})
				})
				time.Sleep(3 * time.Minute)
				cancel(nil)
				wg.Wait()
				if got, want := f.all(), "began, ended "+c.want; got != want && !strings.HasPrefix(got, want+", began, ") {
					t.Fatalf("the hook is told: %s; want %s", got, want)
				}
				if err := f.ends[0].Err; c.err != nil && !errors.Is(err, c.err) || (err == nil) != strings.HasPrefix(c.want, "resigned") {
					t.Errorf("the End has the error %v; want %v", err, c.err)
				}
			})
		})
	}
}

// watchful is a Locker that notes releases.
type watchful struct {
	locker.Locker
	notes *followed
}

func (w watchful) Release(ctx context.Context, lease contract.Lease) error {
	w.notes.note("release")
	return w.Locker.Release(ctx, lease)
}

func TestHooksEndBeforeTheReleaseAndTheLastOneFirst(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		f := &followed{}
		l, _ := overFenced(s.store)
		e := election.New(locker.New(watchful{l, f}), key).OnTerm(f.hook("first ")).
			OnTerm(func(context.Context, election.Term) func(election.End) { return nil }).OnTerm(f.hook("last "))
		_ = e.Run(t.Context(), func(context.Context, election.Term) error { return errEnough })
		synctest.Wait()
		want := []string{"first began", "last began", "last ended failed after 0s", "first ended failed after 0s", "release"}
		if !slices.Equal(f.notes, want) {
			t.Errorf("%q; want %q", f.notes, want)
		}
	})
}

func TestAHookThatPanicsReleasesTheLock(t *testing.T) {
	playFenced(t, func(t *testing.T, s *stage) {
		f := &followed{}
		l, _ := overFenced(s.store)
		e := election.New(locker.New(l), key).OnTerm(f.hook("")).
			OnTerm(func(context.Context, election.Term) func(election.End) { panic("broken") })
		func() {
			defer func() { _ = recover() }()
			_ = e.Run(t.Context(), func(context.Context, election.Term) error {
				t.Error("lead was called")
				return errEnough
			})
		}()
		if got := f.all(); got != "began, ended failed after 0s" {
			t.Errorf("the other hook is told: %s", got)
		}
		mustMatch(t, e.IsLeader(t.Context()), election.ErrNotLeader)
	})
}
