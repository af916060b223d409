package cleanup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

var errDown = errors.New("down")

// definite is an error with a method Permanent.
type definite struct{ permanent bool }

func (d definite) Error() string   { return "definite" }
func (d definite) Permanent() bool { return d.permanent }

func TestRepeatGoesOnUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Repeat(t.Context(), func(ctx context.Context) error {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != tryLimit {
				t.Error("a call does not have the deadline of one call")
			}
			if calls++; calls < 20 {
				return errDown
			}
			return nil
		})
		if err != nil || calls != 20 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestRepeatEndsWithItsCtxOrAPermanentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := Repeat(ctx, func(context.Context) error { return errDown }); !errors.Is(err, errDown) || time.Since(began) != 10*time.Second {
			t.Errorf("Repeat = %v after %v", err, time.Since(began))
		}
		calls := 0
		err := Repeat(t.Context(), func(context.Context) error { calls++; return definite{true} })
		if !outcome.Permanent(err) || calls != 1 {
			t.Errorf("Repeat = %v after %d calls", err, calls)
		}
	})
}
