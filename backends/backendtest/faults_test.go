package backendtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestFaults(t *testing.T) {
	const timeout, delay = time.Second, 3 * time.Second
	open := make(chan struct{})
	close(open)
	for _, c := range []struct {
		name      string
		fault     Fault
		want      error         // matched by the error
		after     time.Duration // when the answer comes
		done      bool          // executed by then
		later     bool          // executed long after
		permanent bool
	}{
		{name: "none", done: true, later: true},
		{name: "Fail", fault: Fail, want: ErrInjected},
		{name: "Permanent", fault: Permanent, want: ErrInjected, permanent: true},
		{name: "Hang", fault: Hang, want: context.DeadlineExceeded, after: timeout},
		{name: "LoseReply", fault: LoseReply, want: ErrInjected, done: true, later: true},
		{name: "LoseReplyHang", fault: LoseReplyHang, want: context.DeadlineExceeded, after: timeout, done: true, later: true},
		{name: "Late", fault: Late(delay), after: delay, done: true, later: true},
		{name: "LateReply", fault: LateReply(delay), after: delay, done: true, later: true},
		{name: "Stall", fault: Stall(open, nil), done: true, later: true},
		{name: "Stall then Fail", fault: Stall(open, Fail), want: ErrInjected},
		{name: "Ghost", fault: Ghost(delay), want: ErrInjected, later: true},
	} {
		check := func(t *testing.T, err error, began time.Time) {
			t.Helper()
			if !errors.Is(err, c.want) {
				t.Errorf("error %v; want %v", err, c.want)
			}
			if got := time.Since(began); got != c.after {
				t.Errorf("answer after %v; want %v", got, c.after)
			}
			var p interface{ Permanent() bool }
			if got := errors.As(err, &p) && p.Permanent(); got != c.permanent {
				t.Errorf("permanent: %v; want %v", got, c.permanent)
			}
		}
		bubble := func(name string, f func(t *testing.T, ctx context.Context, m *memory.Store, f backends.Store)) {
			t.Run(c.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := memory.New()
					faults := new(Faults)
					faults.Set(Op(name), c.fault)
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					f(t, ctx, m, faults.Store(m))
					if n := faults.Calls(Op(name)); n != 1 {
						t.Errorf("%d calls; want 1", n)
					}
				})
			})
		}
		bubble("SetNX", func(t *testing.T, ctx context.Context, m *memory.Store, f backends.Store) {
			began := time.Now()
			res, err := f.SetNX(ctx, "k", "mine", 10*time.Second)
			check(t, err, began)
			if res.OK != (err == nil) {
				t.Errorf("SetNX = %+v, %v", res, err)
			}
			if _, _, ok := m.Get("k"); ok != c.done {
				t.Errorf("stored: %v; want %v", ok, c.done)
			}
			time.Sleep(2 * delay)
			if _, _, ok := m.Get("k"); ok != c.later {
				t.Errorf("stored later: %v; want %v", ok, c.later)
			}
		})
		bubble("ExpireIf", func(t *testing.T, ctx context.Context, m *memory.Store, f backends.Store) {
			m.Set("k", "mine", 10*time.Second)
			began := time.Now()
			ok, err := f.ExpireIf(ctx, "k", "mine", 20*time.Second)
			check(t, err, began)
			if ok != (err == nil) {
				t.Errorf("ExpireIf = %v, %v", ok, err)
			}
			if _, left, _ := m.Get("k"); left > 10*time.Second != c.done {
				t.Errorf("%v left; extended: %v", left, c.done)
			}
			time.Sleep(2 * delay)
			if _, left, _ := m.Get("k"); left > 10*time.Second != c.later {
				t.Errorf("%v left later; extended: %v", left, c.later)
			}
		})
		bubble("DeleteIf", func(t *testing.T, ctx context.Context, m *memory.Store, f backends.Store) {
			m.Set("k", "mine", 10*time.Second)
			began := time.Now()
			ok, err := f.DeleteIf(ctx, "k", "mine")
			check(t, err, began)
			if ok != (err == nil) {
				t.Errorf("DeleteIf = %v, %v", ok, err)
			}
			if _, _, ok := m.Get("k"); ok == c.done {
				t.Errorf("still there: %v", ok)
			}
			time.Sleep(2 * delay)
			if _, _, ok := m.Get("k"); ok == c.later {
				t.Errorf("still there later: %v", ok)
			}
		})
	}
}

func TestFaultsLeaveALateWatchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		faults := new(Faults)
		f := faults.Store(m)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		faults.Set(Watch, Late(3*time.Second))
		if err := f.Watch(ctx, "k", func() { t.Error("woken after the end of ctx") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch whose ctx has ended: error %v", err)
		}
		m.Delete("k")

		faults.Set(Watch, LoseReply)
		woken := 0
		if err := f.Watch(t.Context(), "k", func() { woken++ }); !errors.Is(err, ErrInjected) {
			t.Errorf("Watch with a lost reply: error %v", err)
		}
		m.Delete("k")
		if woken != 1 {
			t.Errorf("woken %d times by a watch whose reply was lost; want 1", woken)
		}
	})
}

func TestStallIgnoresItsCtxUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		faults := new(Faults)
		f := faults.Store(m)
		release := make(chan struct{})
		faults.Set(SetNX, Stall(release, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := f.SetNX(ctx, "k", "mine", 10*time.Second)
			answered <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-answered:
			t.Fatalf("answered before it was released: %v", err)
		default:
		}
		close(release)
		if err := <-answered; err != nil {
			t.Errorf("error %v after the release", err)
		}
		if _, _, ok := m.Get("k"); !ok {
			t.Error("not executed after the release")
		}
	})
}

func TestFaultsComeInTheirOrder(t *testing.T) {
	faults := new(Faults)
	f := faults.Store(memory.New())
	answer := func() string {
		_, err := f.SetNX(t.Context(), "k", "mine", 10*time.Second)
		switch {
		case err == nil:
			return "ok"
		case errors.As(err, new(permanent)):
			return "permanent"
		default:
			return "failed"
		}
	}
	expect := func(want ...string) {
		t.Helper()
		for i, w := range want {
			if got := answer(); got != w {
				t.Errorf("answer %d: %s; want %s", i, got, w)
			}
		}
	}

	faults.Set(All, Fail)
	expect("failed", "failed")
	faults.Set(SetNX, nil)
	expect("ok")
	faults.Set(SetNX, Permanent)
	expect("permanent")
	faults.Set(All, Fail)
	expect("failed")

	faults.Once(All, Permanent)
	faults.Once(SetNX, nil, Permanent)
	faults.Once(DeleteIf, Permanent)
	expect("ok", "permanent", "permanent", "failed")
	if ok, err := f.DeleteIf(t.Context(), "k", "mine"); ok || !errors.As(err, new(permanent)) {
		t.Errorf("DeleteIf = %v, %v; want its own fault", ok, err)
	}

	faults.Once(SetNX, Permanent)
	faults.Clear()
	expect("ok")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	before := faults.Calls(All)
	faults.Once(SetNX, Permanent)
	if _, err := f.SetNX(cancelled, "k", "mine", 10*time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("SetNX with a ctx that is done: %v", err)
	}
	if n := faults.Calls(All) - before; n != 0 {
		t.Errorf("%d calls counted with a ctx that is done", n)
	}
	expect("permanent")
	if a, s, d := faults.Calls(All), faults.Calls(SetNX), faults.Calls(DeleteIf); s != 11 || d != 1 || a != 12 {
		t.Errorf("%d calls, of them %d SetNX and %d DeleteIf; want 12, 11, 1", a, s, d)
	}
}

func TestAFaultOfTheTestItself(t *testing.T) {
	faults := new(Faults)
	f := faults.Store(memory.New())
	faults.Set(SetNX, func(ctx context.Context, execute func(context.Context) error) error {
		if err := execute(ctx); err != nil {
			return err
		}
		return execute(ctx) // a client library that sends everything twice
	})
	if res, err := f.SetNX(t.Context(), "k", "mine", 10*time.Second); err != nil || res != (backends.Result{OK: true}) {
		t.Errorf("SetNX = %+v, %v", res, err)
	}
}

func TestEveryMethodMeetsItsOwnFault(t *testing.T) {
	const key, ttl = "k", 10 * time.Second
	faults := new(Faults)
	queued := faults.Queued(memory.New())
	numbered := faults.Numbered(memory.New())
	fenced := faults.Fenced(memory.New())
	shared := faults.Ordered(memory.New())
	legacy := faults.Legacy(memory.New().Legacy())
	type calls = map[Op]func(context.Context) error
	for _, store := range []calls{
		{
			SetNX:    func(ctx context.Context) error { _, err := fenced.SetNX(ctx, key, "v", ttl); return err },
			ExpireIf: func(ctx context.Context) error { _, err := fenced.ExpireIf(ctx, key, "v", ttl); return err },
			DeleteIf: func(ctx context.Context) error { _, err := fenced.DeleteIf(ctx, key, "v"); return err },
			Watch:    func(ctx context.Context) error { return fenced.Watch(ctx, key, func() {}) },
			SetNXFenced: func(ctx context.Context) error {
				_, err := fenced.SetNXFenced(ctx, key, "v", ttl)
				return err
			},
			RaiseFence: func(ctx context.Context) error { _, err := fenced.RaiseFence(ctx, key, "v", 1); return err },
		},
		{ // the others are those of every store
			SetNX: func(ctx context.Context) error {
				_, err := queued.SetNXQueued(ctx, key, "v", ttl, backends.Turn{})
				return err
			},
			Watch: func(ctx context.Context) error { return queued.WatchQueued(ctx, key, "w", func() {}) },
		},
		{
			SetNXNumbered: func(ctx context.Context) error {
				_, err := numbered.SetNXNumbered(ctx, key, "v", ttl, backends.Turn{})
				return err
			},
		},
		{
			Enter: func(ctx context.Context) error {
				_, err := shared.Enter(ctx, key, "v", ttl, backends.Admission{})
				return err
			},
			Renew: func(ctx context.Context) error { _, err := shared.Renew(ctx, key, "v", ttl); return err },
			Leave: func(ctx context.Context) error { _, err := shared.Leave(ctx, key, "v"); return err },
			Watch: func(ctx context.Context) error { return shared.Watch(ctx, key, func() {}) },
		},
		{
			SetNXForever: func(ctx context.Context) error { _, err := legacy.SetNXForever(ctx, key, "v"); return err },
			Get:          func(ctx context.Context) error { _, _, err := legacy.Get(ctx, key); return err },
			GetSet:       func(ctx context.Context) error { _, _, err := legacy.GetSet(ctx, key, "v"); return err },
			Left:         func(ctx context.Context) error { _, _, err := legacy.Left(ctx, key); return err },
			Expire:       func(ctx context.Context) error { _, err := legacy.Expire(ctx, key, ttl); return err },
			Delete:       func(ctx context.Context) error { _, err := legacy.Delete(ctx, key); return err },
			TxExpireIf:   func(ctx context.Context) error { _, err := legacy.TxExpireIf(ctx, key, "v", ttl); return err },
			TxDeleteIf:   func(ctx context.Context) error { _, err := legacy.TxDeleteIf(ctx, key, "v"); return err },
			GetBit:       func(ctx context.Context) error { _, err := legacy.GetBit(ctx, key, 0); return err },
			SetBit:       func(ctx context.Context) error { _, err := legacy.SetBit(ctx, key, 0, true); return err },
		},
	} {
		for broken := range store {
			faults.Set(broken, Fail)
			for op, call := range store {
				before := faults.Calls(op)
				if err := call(t.Context()); errors.Is(err, ErrInjected) != (op == broken) {
					t.Errorf("%s while %s fails: error %v", op, broken, err)
				}
				if n := faults.Calls(op) - before; n != 1 {
					t.Errorf("%s counted %d times", op, n)
				}
			}
			faults.Clear()
		}
	}
}
