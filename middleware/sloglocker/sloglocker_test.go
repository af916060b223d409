package sloglocker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/proof/allocations"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestWithoutALoggerNothingIsLoggedAndNothingIsWrapped(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	j := newJournal()
	slog.SetDefault(slog.New(j))
	for name, middleware := range map[string]contract.Middleware{
		"no option":  sloglocker.New(),
		"nil logger": sloglocker.New(sloglocker.WithLogger(nil)),
	} {
		l := single.New(memory.New())
		if wrapped := contract.Wrap(l, middleware); wrapped != l {
			t.Errorf("%s: the Locker is wrapped in a %T", name, wrapped)
		}
		if err := locker.New(l, locker.WithMiddleware(middleware)).Do(t.Context(), key, func(context.Context, *locker.Lock) error {
			return nil
		}); err != nil {
			t.Errorf("%s: Do: %v", name, err)
		}
	}
	if all := j.all(); all != "" {
		t.Errorf("logged %s", all)
	}
}

func TestTheTextOfAnErrorIsLogged(t *testing.T) {
	s := play(t, 1, nil, func(s *scene) {
		s.faults[0].Set(backendtest.All, backendtest.Fail)
		s.fail(s.ctx)
	})
	if want := `"error":"lockstep: acquire \"invoice/42\": injected fault; cleanup runs until 00:00:09"`; !strings.Contains(s.journal.all(), want) {
		t.Errorf("logged %s\nwant %s", s.journal.all(), want)
	}
}

// wordy reports a loss by an error of its own, which wraps ErrLost.
type wordy struct{ locker.Locker }

func (wordy) Release(context.Context, contract.Lease) error {
	return fmt.Errorf("no such session: %w", locker.ErrLost)
}

func TestALossThatIsNoLostErrorIsLoggedAsStolen(t *testing.T) {
	s := play(t, 1, func(s *scene) locker.Locker { return wordy{single.New(s.faults[0].Store(s.stores[0]))} }, func(s *scene) {
		if err := s.lock().Unlock(s.ctx); !errors.Is(err, locker.ErrLost) {
			s.Errorf("Unlock = %v", err)
		}
	})
	lines := s.journal.lines()
	want := `level=ERROR msg="lock lost" key=invoice/42 held=0s reason=stolen error=… error_type=error trace=7`
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("logged %s\nwant   %s", last, want)
	}
}

func TestTheLevelOfAnEventCanBeChanged(t *testing.T) {
	journal := []sloglocker.Option{
		sloglocker.WithLevel(sloglocker.Acquired, slog.LevelInfo),
		sloglocker.WithLevel(sloglocker.Lost, slog.LevelError+4),
	}
	for range 2 { // the levels of one logger do not change those of another
		s := play(t, 1, nil, func(s *scene) {
			s.lock()
			s.stores[0].Delete(key)
		}, journal...)
		compare(t, messages(s), []string{"INFO lock acquired", "ERROR+4 lock lost"})
		s = play(t, 1, nil, func(s *scene) { s.lock().Unlock(s.ctx) })
		compare(t, messages(s), []string{"DEBUG lock acquired", "DEBUG lock released"})
	}
}

// messages are the levels and messages of all records.
func messages(s *scene) (messages []string) {
	for _, line := range s.journal.lines() {
		line, _, _ = strings.Cut(line, " key=")
		messages = append(messages, strings.NewReplacer("level=", "", "msg=", "", `"`, "").Replace(line))
	}
	return messages
}

func TestACallThatOnlyStoodInLineIsLoggedAsContended(t *testing.T) {
	s := play(t, 1, nil, func(s *scene) {
		l := s.lock()
		time.AfterFunc(5*time.Second, func() { l.Unlock(s.ctx) })
		go func() { // this call is the head of the line
			s.lock().Unlock(s.ctx)
		}()
		time.Sleep(time.Second)
		s.fail(s.ctx, locker.WithWait(time.Second))
	})
	want := `msg="lock wait timed out" key=invoice/42 outcome=timeout ttl=9s waited=1s contended=true`
	if lines := strings.Join(s.journal.lines(), "\n"); !strings.Contains(lines, want) {
		t.Errorf("logged\n%s\nwant\n%s", lines, want)
	}
}

func TestWrapLogsEachAttempt(t *testing.T) {
	s := play(t, 1, nil, func(s *scene) {
		s.faults[0].Once(backendtest.DeleteIf, backendtest.Fail) // the release of a cleanup, which is not logged
		log := sloglocker.New(sloglocker.WithLogger(slog.New(s.journal)))
		locks := locker.New(contract.Wrap(single.New(s.faults[0].Store(s.stores[0])), log), locker.WithTTL(9*time.Second), locker.WithBackoff(steady))
		s.faults[0].Once(backendtest.SetNX, backendtest.LoseReply)
		if _, err := locks.Lock(s.ctx, key); err == nil {
			s.Error("Lock = nil although the reply was lost")
		}
		time.Sleep(time.Minute)
		s.taken(500 * time.Millisecond)
		l, err := locks.Lock(s.ctx, key)
		if err != nil {
			s.Fatal(err)
		}
		l.Unlock(s.ctx)
	})
	compare(t, messages(s), []string{
		"ERROR lock acquire failed", "DEBUG lock busy", "DEBUG lock busy", "DEBUG lock busy", "DEBUG lock acquired", "DEBUG lock released",
	})
}

// unsteady is a Locker that does not return from some calls.
type unsteady struct {
	locker.Locker
	acquire, extend, release func()
}

func leave(how func()) {
	if how != nil {
		how()
	}
}

func (u unsteady) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	leave(u.acquire)
	return u.Locker.Acquire(ctx, req)
}

func (u unsteady) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	leave(u.extend)
	return u.Locker.Extend(ctx, lease, ttl)
}

func (u unsteady) Release(ctx context.Context, lease contract.Lease) error {
	leave(u.release)
	return u.Locker.Release(ctx, lease)
}

func TestALockerThatPanicsOrEndsTheGoroutineIsLoggedOnce(t *testing.T) {
	panics := func() { panic("oh") }
	tryLock := func(s *scene) {
		defer func() {
			if r := recover(); r != "oh" {
				s.Errorf("recovered %v", r)
			}
		}()
		if l, err := s.locks.TryLock(context.Background(), key); err == nil {
			l.Unlock(context.Background()) // with such a ctx the call is on this goroutine
		}
	}
	for _, c := range []struct {
		name string
		unsteady
		do   func(s *scene)
		want []string
	}{
		{"Acquire panics", unsteady{acquire: panics}, tryLock, []string{"ERROR lock acquire failed"}},
		{"Release panics", unsteady{release: panics}, tryLock, []string{
			"DEBUG lock acquired", "WARN lock release not confirmed", "ERROR lock release failed",
		}},
		{"Acquire ends the goroutine", unsteady{acquire: runtime.Goexit}, func(s *scene) { s.fail(s.ctx) }, []string{
			"ERROR lock acquire failed",
		}},
		{"Release ends the goroutine", unsteady{release: runtime.Goexit}, func(s *scene) { s.lock().Unlock(s.ctx) }, []string{
			"DEBUG lock acquired", "WARN lock release not confirmed", "ERROR lock release failed",
		}},
		{"Extend ends the goroutine", unsteady{extend: runtime.Goexit}, func(s *scene) {
			l := s.lock()
			time.Sleep(3 * time.Second)
			l.Unlock(s.ctx)
		}, []string{"DEBUG lock acquired", "WARN lock extension failed", "DEBUG lock released"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := play(t, 1, func(s *scene) locker.Locker {
				c.Locker = single.New(s.faults[0].Store(s.stores[0]))
				return c.unsteady
			}, c.do)
			compare(t, messages(s), c.want)
		})
	}
}

// below is a handler for errors alone. A record below that level fails the test.
type below struct {
	slog.Handler
	t *testing.T
}

func (h below) Handle(_ context.Context, r slog.Record) error {
	h.t.Errorf("%v %s is below the level", r.Level, r.Message)
	return nil
}

func TestBelowTheLevelOfTheHandlerOnlyTheHookIsAllocated(t *testing.T) {
	allocs := func(middleware ...contract.Middleware) float64 {
		locks := locker.New(single.New(memory.New()), locker.WithMiddleware(middleware...))
		return allocations.Of(4000, func() {
			if l, err := locks.Lock(context.Background(), key); err != nil || l.Unlock(context.Background()) != nil {
				t.Fatal(err)
			}
		})
	}
	errorsOnly := below{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}), t}
	attribute := sloglocker.WithKeyAttribute(func(string) string {
		t.Error("attributes were built for a record that is not logged")
		return ""
	})
	without, with := allocs(), allocs(sloglocker.New(sloglocker.WithLogger(slog.New(errorsOnly)), attribute))
	if more := with - without; more > 4.6 { // 4: a hook, its hold, the end of that, and the list of ends
		t.Errorf("%.2f allocations more than %.2f; want 4", more, without)
	}
}

func TestErrorsPassThroughAsTheyAre(t *testing.T) {
	failure := errors.New("of the Locker")
	l := contract.Wrap(failing{err: failure}, sloglocker.New(sloglocker.WithLogger(slog.New(newJournal()))))
	_, acquire := l.Acquire(t.Context(), contract.Request{Key: key})
	_, extend := l.Extend(t.Context(), contract.Lease{Key: key}, time.Second)
	for op, err := range map[string]error{
		"Acquire": acquire, "Extend": extend, "Release": l.Release(t.Context(), contract.Lease{Key: key}),
		"Watch": l.Watch(t.Context(), key, "", func() {}),
	} {
		if err != failure {
			t.Errorf("%s: error %v; want the error of the Locker, unchanged", op, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Acquire(context.Context, contract.Request) (contract.Lease, error) {
	return contract.Lease{}, f.err
}

func (f failing) Transfer(context.Context, string, contract.Request) (contract.Lease, error) {
	return contract.Lease{}, f.err
}

func (f failing) Extend(context.Context, contract.Lease, time.Duration) (contract.Lease, error) {
	return contract.Lease{}, f.err
}
func (f failing) Release(context.Context, contract.Lease) error       { return f.err }
func (f failing) Watch(context.Context, string, string, func()) error { return f.err }
