package locker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// What follows has the shape of gocron.Locker and gocron.Lock. The real ones are in bench/interop.
type (
	cronLocker interface {
		Lock(ctx context.Context, key string) (cronLock, error)
	}
	cronLock interface {
		Unlock(ctx context.Context) error
	}
)

var _ cronLocker = locker.As[cronLock](nil)

func TestAsIsTheLockerOfAnotherLibrary(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var jobs cronLocker = locker.As[cronLock](c, locker.WithAttempts(1), locker.WithMinHold(minHold))
		l, err := jobs.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		none, err := jobs.Lock(t.Context(), "key")
		mustMatch(t, err, locker.ErrHeld)
		if none != nil {
			t.Errorf("Lock = %v with an error; want nil", none)
		}
		time.Sleep(minHold)
	})
}

func TestAsOfATypeThatALockIsNotIsAnErrorBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const want = `lockstep: lock "key": *locker.Lock is no `
		var permanent interface{ Permanent() bool }
		for name, err := range map[string]error{
			"error":  second(locker.As[error](c).Lock(t.Context(), "key")),
			"string": second(locker.As[string](c).Lock(t.Context(), "key")),
		} {
			if err == nil || err.Error() != want+name || !errors.As(err, &permanent) {
				t.Errorf("%v; want %s%s", err, want, name)
			}
		}
		if acquires, _, _, _ := s.asked(); acquires != 0 {
			t.Error("something was sent")
		}
		if err := second(locker.As[cronLock](nil).Lock(t.Context(), "key")); err == nil {
			t.Error("no Client, and no error")
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Each process runs the schedule, and one of them does the work of a tick.
func ExampleWithMinHold() {
	ctx := context.Background()
	store := memory.New()
	tick := "report/2026-11-22"
	for _, process := range []string{"first", "second"} {
		locks := locker.New(single.New(store))
		err := locks.Do(ctx, tick, func(ctx context.Context, l *locker.Lock) error {
			fmt.Println("written by the", process)
			return nil
		}, locker.WithAttempts(1), locker.WithMinHold(30*time.Second))
		if errors.Is(err, locker.ErrHeld) {
			fmt.Println("done already, says the", process)
		}
	}
	// Output:
	// written by the first
	// done already, says the second
}

func ExampleClient_DoAll() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()))

	err := locks.DoAll(ctx, []string{"account/7", "account/3"}, func(ctx context.Context, held []*locker.Lock) error {
		for _, l := range held {
			fmt.Println("held:", l.Key())
		}
		return ctx.Err() // ctx ends when any of the locks is lost
	}, locker.WithWait(5*time.Second))
	fmt.Println(err)
	// Output:
	// held: account/3
	// held: account/7
	// <nil>
}

// Package gocron has such interfaces.
func ExampleAs() {
	type Lock interface {
		Unlock(ctx context.Context) error
	}
	type Locker interface {
		Lock(ctx context.Context, key string) (Lock, error)
	}

	ctx := context.Background()
	locks := locker.New(single.New(memory.New()))
	var jobs Locker = locker.As[Lock](locks, locker.WithAttempts(1), locker.WithMinHold(20*time.Second))

	l, err := jobs.Lock(ctx, "nightly")
	fmt.Println(err)
	_ = l.Unlock(ctx)
	_, err = jobs.Lock(ctx, "nightly")
	fmt.Println(errors.Is(err, locker.ErrHeld))
	// Output:
	// <nil>
	// true
}
