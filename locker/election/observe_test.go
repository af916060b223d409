package election_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// failingInspector fails with err while it is down.
type failingInspector struct {
	backends.Inspector
	err  error
	down atomic.Bool
}

func (f *failingInspector) Inspect(ctx context.Context, key string) (backends.State, error) {
	if f.down.Load() {
		return backends.State{}, f.err
	}
	return f.Inspector.Inspect(ctx, key)
}

func TestLeaderSaysWhoLeadsAndThatNobodyDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		want := func(want election.Leadership) {
			t.Helper()
			if l, err := election.Leader(t.Context(), store, "key"); err != nil || l != want {
				t.Errorf("Leader = %+v, %v; want %+v", l, err, want)
			}
		}
		want(election.Leadership{})
		ctx, shutdown := context.WithCancel(t.Context())
		e := election.New(locker.New(fenced.New(store), locker.WithHolder("pod-1")), "key")
		terms := make(chan election.Term, 1)
		ended := make(chan error)
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, term election.Term) error {
				terms <- term
				<-ctx.Done()
				return nil
			})
		}()
		term := <-terms
		want(election.Leadership{Led: true, Holder: "pod-1", Number: term.Number, Left: locker.DefaultTTL})
		next := fenced.New(store)
		if err := next.Watch(t.Context(), "key", "the next candidate", func() {}); err != nil {
			t.Fatal(err)
		}
		asks := contract.Request{Key: "key", Token: contract.NewToken(), TTL: locker.DefaultTTL, Turn: contract.Turn{Waiter: "the next candidate"}}
		if _, err := next.Acquire(t.Context(), asks); !errors.Is(err, locker.ErrHeld) {
			t.Fatalf("Acquire = %v", err)
		}
		shutdown()
		<-ended
		if s, err := store.Inspect(t.Context(), "key"); err != nil || s.Reserved != 1 {
			t.Fatalf("Inspect = %+v, %v; want the key reserved", s, err)
		}
		want(election.Leadership{})
		store.Set("key", "an operator", 0)
		if _, err := election.Leader(t.Context(), store, "key"); !errors.Is(err, locker.ErrForeignKey) {
			t.Errorf("Leader of a key with a value that no lease wrote = %v", err)
		}
	})
}

func TestObserveTellsEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		inspector := &failingInspector{Inspector: store, err: errors.New("connection refused")}
		var told []string
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- election.Observe(ctx, inspector, "key", time.Second, func(l election.Leadership, err error) {
				switch {
				case err != nil:
					told = append(told, "nobody knows")
				case l.Led:
					told = append(told, l.Holder)
				default:
					told = append(told, "nobody")
				}
			})
		}()
		lead := func(name string) (end func()) {
			l, err := locker.New(single.New(store), locker.WithHolder(name)).Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Unlock(t.Context()) }
		}
		time.Sleep(3500 * time.Millisecond)
		end := lead("ann")
		time.Sleep(time.Minute) // it renews its lease
		end()
		end = lead("bob")
		time.Sleep(5 * time.Second)
		inspector.down.Store(true)
		time.Sleep(5 * time.Second)
		inspector.down.Store(false)
		time.Sleep(5 * time.Second)
		end()
		time.Sleep(5 * time.Second)
		inspector.down.Store(true)
		time.Sleep(5 * time.Second)
		inspector.down.Store(false)
		time.Sleep(5 * time.Second)
		stop()
		stopped := time.Now()
		if err := <-ended; !errors.Is(err, context.Canceled) || !time.Now().Equal(stopped) {
			t.Errorf("Observe = %v, %v after its ctx", err, time.Since(stopped))
		}
		if want := []string{"nobody", "ann", "bob", "nobody knows", "bob", "nobody", "nobody knows", "nobody"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
	})
}

func TestObserveTellsTwoTermsOfOneLabelApartByTheirNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks := locker.New(fenced.New(store), locker.WithHolder("ann"))
		var told, want []uint64
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- election.Observe(ctx, store, "key", time.Second, func(l election.Leadership, err error) {
				if l.Led {
					told = append(told, l.Number)
				}
			})
		}()
		time.Sleep(time.Second / 2)
		for range 3 {
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, l.Fence())
			time.Sleep(3 * time.Second)
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		<-ended
		if !slices.Equal(told, want) {
			t.Errorf("told the terms %d; want %d", told, want)
		}
	})
}

// hangingInspector does not answer until ctx ends while it is down.
type hangingInspector struct{ failingInspector }

func (h *hangingInspector) Inspect(ctx context.Context, key string) (backends.State, error) {
	if h.down.Load() {
		<-ctx.Done()
		return backends.State{}, ctx.Err()
	}
	return h.Inspector.Inspect(ctx, key)
}

func TestObserveTellsThatTheStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		l, err := locker.New(single.New(store), locker.WithHolder("ann")).Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		inspector := &hangingInspector{failingInspector{Inspector: store}}
		ctx, stop := context.WithCancel(t.Context())
		began, ended := time.Now(), make(chan error)
		var told []string
		go func() {
			ended <- election.Observe(ctx, inspector, "key", time.Second, func(l election.Leadership, err error) {
				told = append(told, fmt.Sprintf("%v %s %v", time.Since(began), l.Holder, err))
			})
		}()
		time.Sleep(1500 * time.Millisecond)
		inspector.down.Store(true)
		time.Sleep(time.Minute)
		inspector.down.Store(false)
		time.Sleep(time.Minute)
		inspector.down.Store(true)
		time.Sleep(5 * time.Second)
		stop() // while the store hangs
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Observe = %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"0s ann <nil>", `12s  lockstep: observe "key": context deadline exceeded`, "1m8s ann <nil>"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
	})
}

// deafInspector does not follow ctx. While it is down it answers what was true when it was asked.
type deafInspector struct {
	failingInspector
	calls atomic.Int32 // while it is down
	hangs chan struct{}
}

func (d *deafInspector) Inspect(ctx context.Context, key string) (backends.State, error) {
	s, err := d.Inspector.Inspect(ctx, key)
	if d.down.Load() {
		d.calls.Add(1)
		<-d.hangs
	}
	return s, err
}

func TestObserveLeavesAReadThatDoesNotFollowItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		inspector := &deafInspector{failingInspector: failingInspector{Inspector: store}, hangs: make(chan struct{})}
		lead := func(name string) *locker.Lock {
			l, err := locker.New(single.New(store), locker.WithHolder(name)).Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := lead("ann")
		ctx, stop := context.WithCancel(t.Context())
		var told []string
		ended := make(chan error)
		go func() {
			ended <- election.Observe(ctx, inspector, "key", time.Second, func(l election.Leadership, err error) {
				told = append(told, fmt.Sprintf("%s %v", l.Holder, errors.Is(err, context.DeadlineExceeded)))
			})
		}()
		time.Sleep(1500 * time.Millisecond)
		inspector.down.Store(true)
		time.Sleep(time.Minute)
		_ = l.Unlock(t.Context())
		l = lead("bob")
		inspector.down.Store(false)
		inspector.hangs <- struct{}{} // the first read answers that ann leads
		time.Sleep(15 * time.Second)
		inspector.down.Store(true)
		time.Sleep(5 * time.Second)
		stop() // before the patience is over
		stopped := time.Now()
		if err := <-ended; !errors.Is(err, context.Canceled) || !time.Now().Equal(stopped) {
			t.Errorf("Observe = %v, %v after its ctx", err, time.Since(stopped))
		}
		if want := []string{"ann false", " true", "bob false"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
		close(inspector.hangs)
		_ = l.Unlock(t.Context())
	})
}

func TestObserveGoesOnAfterAReadThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		l, err := locker.New(single.New(store), locker.WithHolder("ann")).Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		inspector := &deafInspector{failingInspector: failingInspector{Inspector: store}, hangs: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		began, ended := time.Now(), make(chan error)
		var told []string
		go func() {
			ended <- election.Observe(ctx, inspector, "key", time.Second, func(l election.Leadership, err error) {
				told = append(told, fmt.Sprintf("%v %s %v", time.Since(began), l.Holder, err))
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		inspector.down.Store(true)
		time.Sleep(time.Second)
		inspector.down.Store(false)
		time.Sleep(2 * time.Minute)
		stop()
		<-ended
		if want := []string{"0s ann <nil>", `13s  lockstep: observe "key": context deadline exceeded`, "14s ann <nil>"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
		close(inspector.hangs)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestObserveLeavesNoMoreThanEightReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inspector := &deafInspector{failingInspector: failingInspector{Inspector: memory.New()}, hangs: make(chan struct{})}
		inspector.down.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		var told []error
		ended := make(chan error)
		go func() {
			ended <- election.Observe(ctx, inspector, "key", time.Second, func(_ election.Leadership, err error) { told = append(told, err) })
		}()
		time.Sleep(time.Hour)
		for returned := range int32(3) {
			if n := inspector.calls.Load() - returned; n != 8 {
				t.Errorf("%d reads hang; want 8", n)
			}
			inspector.hangs <- struct{}{}
			time.Sleep(time.Minute)
		}
		inspector.down.Store(false)
		inspector.hangs <- struct{}{}
		time.Sleep(time.Minute)
		stop()
		<-ended
		if len(told) != 2 || !errors.Is(told[0], context.DeadlineExceeded) || told[1] != nil {
			t.Errorf("told %v; want one error, and then an answer", told)
		}
		close(inspector.hangs)
	})
}

type denied struct{}

func (denied) Error() string   { return "NOPERM" }
func (denied) Permanent() bool { return true }

func TestWhatCannotBeObservedIsAnError(t *testing.T) {
	store, changed := memory.New(), func(election.Leadership, error) {}
	closed := &failingInspector{err: denied{}}
	closed.down.Store(true)
	var none context.Context
	var missing *memory.Store
	for want, err := range map[string]error{
		`lockstep: observe "key": store is nil`:                         election.Observe(t.Context(), nil, "key", time.Second, changed),
		`lockstep: observe "nil pointer": store is nil`:                 election.Observe(t.Context(), missing, "nil pointer", time.Second, changed),
		`lockstep: observe "": key is empty`:                            election.Observe(t.Context(), store, "", time.Second, changed),
		`lockstep: observe "key": interval 0s is not positive`:          election.Observe(t.Context(), store, "key", 0, changed),
		`lockstep: observe "key": changed is nil`:                       election.Observe(t.Context(), store, "key", time.Second, nil),
		`lockstep: observe "key": ctx is nil; use context.Background()`: election.Observe(none, store, "key", time.Second, changed),
		`lockstep: observe "key": NOPERM`:                               election.Observe(t.Context(), closed, "key", time.Second, changed),
		`lockstep: observe "other": key holds something that is not a lease: key holds a value of another type`: func() error {
			store.SetOther("other")
			_, err := election.Leader(t.Context(), store, "other")
			if !errors.Is(err, locker.ErrForeignKey) {
				t.Errorf("Leader of a key of another type = %v", err)
			}
			return err
		}(),
	} {
		if fmt.Sprint(err) != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestNobodyLeadsWhileAKeyIsClosedAfterAnEviction(t *testing.T) {
	store := memory.New()
	if r, err := store.SetNX(t.Context(), "key", "ann "+rand.Text(), 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	if l, err := election.Leader(t.Context(), store, "key"); err != nil || l.Holder != "ann" {
		t.Fatalf("Leader = %+v, %v", l, err)
	}
	s, err := store.Inspect(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := store.Evict(t.Context(), "key", s.Holds[0].Print, backends.Eviction{By: "operator"}); err != nil || !ok {
		t.Fatalf("Evict = %v, %v", ok, err)
	}
	if l, err := election.Leader(t.Context(), store, "key"); err != nil || l != (election.Leadership{}) {
		t.Errorf("Leader = %+v, %v; want nobody", l, err)
	}
}
