package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("down")

// definite is an error with a method Permanent.
type definite struct{ permanent bool }

func (d definite) Error() string   { return "definite" }
func (d definite) Permanent() bool { return d.permanent }

type unsent struct{ unsent bool }

func (u unsent) Error() string { return "unsent" }
func (u unsent) Unsent() bool  { return u.unsent }

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
		if !Permanent(err) || calls != 1 {
			t.Errorf("Repeat = %v after %d calls", err, calls)
		}
	})
}

func TestPermanentLooksThroughWrapping(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errDown: false, definite{true}: true, definite{false}: false,
		errors.Join(errDown, definite{true}): true,
	} {
		if Permanent(err) != want {
			t.Errorf("Permanent(%v) = %v", err, !want)
		}
	}
}

func TestACallWhoseConnectionWasNeverMadeWasNotSent(t *testing.T) {
	var d net.Dialer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.DialContext(ctx, "tcp", "127.0.0.1:1")
	if !Unsent(fmt.Errorf("client: %w", err)) || Unsent(&net.OpError{Op: "read", Err: errDown}) || Unsent(errDown) || Unsent(nil) {
		t.Errorf("Unsent(%v) = false, or true for an error after a connection was made", err)
	}
}

func TestUnsentFollowsTheMethodOfTheError(t *testing.T) {
	if !Unsent(fmt.Errorf("store: %w", unsent{true})) || Unsent(unsent{false}) || Unsent(definite{true}) {
		t.Error("Unsent does not return what the method Unsent of the error returns")
	}
}
