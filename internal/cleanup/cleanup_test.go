package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("down")

type refusal struct{ refused bool }

func (r refusal) Error() string { return "refusal" }
func (r refusal) Refused() bool { return r.refused }

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
		if !Refused(err) || calls != 1 {
			t.Errorf("Repeat = %v after %d calls", err, calls)
		}
	})
}

func TestGoConfirmsAfterTheAnswerAndIgnoresTheCallersCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), refusal{}, "value"))
		cancel()
		began := time.Now()
		var at []time.Duration
		new(Group).Go(ctx, time.Hour, func(ctx context.Context) error {
			if ctx.Err() != nil || ctx.Value(refusal{}) != "value" {
				t.Error("it takes the values of the caller's ctx, and not its end")
			}
			at = append(at, time.Since(began))
			if len(at) == 1 {
				return errDown
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []time.Duration{0, firstPause}
		for _, pause := range confirmations {
			want = append(want, want[len(want)-1]+pause)
		}
		if len(at) != len(want) {
			t.Fatalf("called at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("called at %v, want %v", at, want)
			}
		}
	})
}

func TestGoEndsWithTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, last, began := 0, time.Duration(0), time.Now()
		new(Group).Go(t.Context(), 5*time.Second, func(context.Context) error {
			calls++
			last = time.Since(began)
			return errDown
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls < 10 || last > 5*time.Second {
			t.Errorf("%d calls, the last after %v", calls, last)
		}
	})
}

func TestACallThatHangsDoesNotKeepTheNextAndNoneFollowsTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		release := make(chan struct{})
		new(Group).Go(t.Context(), 10*time.Second, func(context.Context) error {
			calls.Add(1)
			<-release // whatever its ctx says
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := calls.Load(); n != 5 {
			t.Errorf("%d calls in a ttl of 10 s, want one each %v", n, 2*tryLimit)
		}
		close(release)
	})
}

func TestRefusedLooksThroughWrapping(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errDown: false, refusal{true}: true, refusal{false}: false,
		errors.Join(errDown, refusal{true}): true,
	} {
		if Refused(err) != want {
			t.Errorf("Refused(%v) = %v", err, !want)
		}
	}
}

func TestACallMoreThanTheLimitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var under, most, done atomic.Int32
		stuck := make(chan struct{})
		for range 3 * maxCalls {
			g.Settle(t.Context(), time.Hour, func(context.Context) error {
				if n := under.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer under.Add(-1)
				<-stuck
				done.Add(1)
				return nil
			})
		}
		synctest.Wait()
		if n := under.Load(); n != maxCalls {
			t.Errorf("%d calls at once; want %d", n, maxCalls)
		}
		other := make(chan struct{})
		new(Group).Settle(t.Context(), time.Hour, func(context.Context) error { close(other); return nil })
		<-other // another store is not kept waiting
		close(stuck)
		time.Sleep(10 * maxPause)
		if most.Load() != maxCalls || done.Load() != 3*maxCalls {
			t.Errorf("%d calls at once, %d done; want %d and %d", most.Load(), done.Load(), maxCalls, 3*maxCalls)
		}
	})
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
