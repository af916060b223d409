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

type refusal struct{ refused bool }

func (r refusal) Error() string   { return "refusal" }
func (r refusal) Permanent() bool { return r.refused }

type unsent struct{ unsent bool }

func (u unsent) Error() string { return "unsent" }
func (u unsent) Unsent() bool  { return u.unsent }

func TestRepeatGoesOnUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Repeat(t.Context(), func(ctx context.Context) error {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != tryLimit {
				t.Error("a call has no limit of its own")
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

func TestRepeatEndsWithItsCtxOrARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := Repeat(ctx, func(context.Context) error { return errDown }); !errors.Is(err, errDown) || time.Since(began) != 10*time.Second {
			t.Errorf("Repeat = %v after %v", err, time.Since(began))
		}
		calls := 0
		err := Repeat(t.Context(), func(context.Context) error { calls++; return refusal{true} })
		if !Permanent(err) || calls != 1 {
			t.Errorf("Repeat = %v after %d calls", err, calls)
		}
	})
}

func TestRefusedLooksThroughWrapping(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errDown: false, refusal{true}: true, refusal{false}: false,
		errors.Join(errDown, refusal{true}): true,
	} {
		if Permanent(err) != want {
			t.Errorf("Permanent(%v) = %v", err, !want)
		}
	}
}

func TestAConnectionThatWasNeverMadeCarriedNothing(t *testing.T) {
	var d net.Dialer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.DialContext(ctx, "tcp", "127.0.0.1:1")
	if !Unsent(fmt.Errorf("client: %w", err)) || Unsent(&net.OpError{Op: "read", Err: errDown}) || Unsent(errDown) || Unsent(nil) {
		t.Errorf("Unsent(%v) and of others", err)
	}
}

func TestACallThatSaysSoWasNotSent(t *testing.T) {
	if !Unsent(fmt.Errorf("store: %w", unsent{true})) || Unsent(unsent{false}) || Unsent(refusal{true}) {
		t.Error("Unsent does not heed what an error says of itself")
	}
}
