package cleanup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// quarantine is an error of grants alone: renewals and releases go on.
type quarantine struct{}

func (quarantine) Error() string   { return "in quarantine" }
func (quarantine) Unsent() bool    { return true }
func (quarantine) Permanent() bool { return false }

func TestAServerThatRefusesGrantsIsAskedForExtensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		c, _ := q.Ask(true, false, 100)
		q.Answered(c, quarantine{})
		if _, ok := q.Ask(true, false, 100); ok {
			t.Error("a grant was let through")
		}
		for range 10 {
			if _, ok := q.Ask(false, false, 100); !ok {
				t.Error("an extension was not let through")
			}
		}
	})
}

func TestAProbeThatNeverReturnsIsFollowedByAFewOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		c, _ := q.Ask(false, false, 100)
		q.Answered(c, errDown)
		began, probes := time.Now(), []time.Duration{}
		var last Call
		for time.Since(began) < time.Hour {
			if c, ok := q.Ask(false, false, 100); ok {
				probes, last = append(probes, time.Since(began)), c
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(probes); n < 8 || n > maxDoubling+5 || probes[1]-probes[0] > 2*time.Second {
			t.Errorf("probes at %v; want 8 to %d in an hour", probes, maxDoubling+5)
		}
		q.Answered(last, nil)
		if _, ok := q.Ask(false, false, 100); !ok {
			t.Error("a server that has answered a probe gets no call")
		}
	})
}

func TestAPermanentErrorAboutOneKeyDoesNotStopOtherGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		c, _ := q.Ask(true, false, 100)
		q.Answered(c, definite{true})
		for i := range 50 {
			if _, ok := q.Ask(true, false, 100); !ok {
				t.Fatalf("only %d grants at once after a permanent error", i)
			}
		}
	})
}

func TestFailuresBeforeTheLastGrantDoNotCount(t *testing.T) {
	q := New(true)
	for i := range 3 * fewRefusals {
		c, err := q.Reserve(t.Context(), fmt.Sprint(i), true)
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			q.Answered(c, nil)
		} else {
			q.Answered(c, errDown)
		}
		q.Free()
	}
}

// There is one server. Its errors may be about one key, so other keys still get their calls.
func TestOneKeyThatFailsDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		for range 10 * fewRefusals {
			c, err := q.Reserve(t.Context(), "k", true)
			if err != nil {
				t.Fatal(err)
			}
			q.Answered(c, errDown)
			q.Free()
		}
		if _, err := q.Reserve(t.Context(), "other", true); err != nil {
			t.Error(err)
		}
	})
}

// One connection is slow, and the others are answered.
func TestOneSlowConnectionDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		for i := range 10 * fewRefusals {
			slow, err := q.Reserve(t.Context(), fmt.Sprint("slow", i), true)
			if err != nil {
				t.Fatal(err)
			}
			quick, err := q.Reserve(t.Context(), fmt.Sprint("quick", i), true)
			if err != nil {
				t.Fatal(err)
			}
			q.Answered(quick, nil)
			q.Answered(slow, errDown)
			q.Free()
			q.Free()
		}
	})
}

// failGrants makes grants fail until q lets through only one at a time.
func failGrants(t *testing.T, q *Queue, cause error) {
	t.Helper()
	for i := range fewRefusals {
		c, err := q.Reserve(t.Context(), fmt.Sprint(i), true)
		if err != nil {
			t.Fatal(err)
		}
		q.Answered(c, cause)
		q.Free()
	}
}

func TestWhileAServerFailsOneAttemptAtATimeIsSentAndTheRestFailUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		sent := 0
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
			c, err := q.Reserve(t.Context(), "k", true)
			if err == nil {
				sent++
				q.Answered(c, errDown)
				q.Free()
				continue
			}
			const want = "not sent: one attempt at a time asks the server until it answers, since others failed: down"
			if !outcome.Unsent(err) || !errors.Is(err, errDown) || err.Error() != want {
				t.Fatal(err)
			}
		}
		if sent < 8 || sent > 50 || q.Stats() != (Stats{}) {
			t.Errorf("%d attempts sent in 10 s; want 8 to 50, and %+v empty", sent, q.Stats())
		}
		if _, err := q.Reserve(t.Context(), "k", false); err != nil {
			t.Errorf("a quorum has called Ask itself, and must not be stopped here: %v", err)
		}
	})
}

func TestTheErrorOfAnAttemptThatIsNotSentMatchesNoEndOfACtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, fmt.Errorf("of another call: %w", context.DeadlineExceeded))
		if _, err := q.Reserve(t.Context(), "k", true); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// rush makes n attempts at one instant. Each takes 10 ms and ends with err.
func rush(t *testing.T, q *Queue, n int, err error) (most, unsent int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	now := 0
	for i := range n {
		all.Go(func() {
			c, refused := q.Reserve(t.Context(), fmt.Sprint(i), true)
			mu.Lock()
			if refused != nil {
				unsent++
				mu.Unlock()
				return
			}
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			q.Answered(c, err)
			q.Free()
		})
	}
	all.Wait()
	if n := q.slots.waiting.Load(); n != 0 {
		t.Errorf("%d attempts count as waiting, so each Free takes the mutex", n)
	}
	return most, unsent
}

func TestAttemptsRampUpWhenAServerAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		time.Sleep(maxPause)
		c, err := q.Reserve(t.Context(), "k", true)
		if err != nil {
			t.Fatal(err)
		}
		q.Answered(c, nil)
		q.Free()
		if most, unsent := rush(t, q, 100, nil); most < 20 || most > 80 || unsent > 0 {
			t.Errorf("of 100 attempts at one instant, %d were under way at once, want 20 to 80; %d were not sent", most, unsent)
		}
		if _, unsent := rush(t, q, 1000, nil); unsent > 0 {
			t.Errorf("%d attempts were not sent", unsent)
		}
		if most, unsent := rush(t, q, 1000, nil); most != 1000 || unsent > 0 || q.Stats() != (Stats{}) {
			t.Errorf("after the ramp %d of 1000 attempts were under way at once, %d not sent; %+v", most, unsent, q.Stats())
		}
	})
}

func TestAServerThatFailsAgainEndsTheRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		time.Sleep(maxPause)
		c, _ := q.Reserve(t.Context(), "k", true)
		q.Answered(c, nil)
		q.Free()
		if most, unsent := rush(t, q, 100, errDown); most > fewCalls+1 || unsent < 100-4*fewRefusals || q.Stats() != (Stats{}) {
			t.Errorf("%d under way at once, %d not sent; %+v", most, unsent, q.Stats())
		}
	})
}

func TestAnAttemptLeavesTheRampWithItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		time.Sleep(maxPause)
		c, _ := q.Reserve(t.Context(), "k", true)
		q.Answered(c, nil)
		q.Free()
		for range fewCalls + 1 {
			if _, err := q.Reserve(t.Context(), "k", true); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Reserve(ctx, "k", true); !outcome.Unsent(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		q.slots.mu.Lock()
		defer q.slots.mu.Unlock()
		if len(q.slots.waiters) != 0 || q.slots.waiting.Load() != 0 {
			t.Errorf("%d attempts still wait", len(q.slots.waiters))
		}
	})
}

// All slots are in use. The attempt that is the probe waits for a slot, and is sent then.
func TestAProbeThatFindsNoSlotWaitsForOneAndIsThenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		time.Sleep(maxPause)
		for q.TryReserve() {
		}
		sent := make(chan error, 1)
		go func() {
			_, err := q.Reserve(t.Context(), "k", true)
			sent <- err
		}()
		synctest.Wait()
		select {
		case err := <-sent:
			t.Fatalf("Reserve did not wait for a slot: %v", err)
		default:
		}
		q.Free()
		if err := <-sent; err != nil {
			t.Errorf("with a slot: %v", err)
		}
	})
}

func TestAProbeThatIsWithdrawnIsFollowedByAnotherAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		c, _ := q.Ask(false, false, 100)
		q.Answered(c, errDown)
		time.Sleep(maxPause)
		probe, ok := q.Ask(false, false, 100)
		if !ok {
			t.Fatal("a server that does not answer is not probed")
		}
		if _, ok := q.Ask(false, false, 100); ok {
			t.Error("a second probe was let through beside the first")
		}
		q.Withdraw(probe)
		if _, ok := q.Ask(false, false, 100); !ok {
			t.Error("no probe was let through after the first was withdrawn")
		}
	})
}

func TestAnAttemptThatIsWithdrawnMakesRoomOnTheRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(true)
		failGrants(t, q, errDown)
		time.Sleep(maxPause)
		c, _ := q.Reserve(t.Context(), "k", true)
		q.Answered(c, nil)
		q.Free()
		var last Call
		for range fewCalls + 1 {
			last, _ = q.Reserve(t.Context(), "k", true)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := q.Reserve(t.Context(), "k", true)
			sent <- err
		}()
		synctest.Wait()
		if len(sent) > 0 {
			t.Error("more attempts are under way than the ramp allows")
		}
		q.Withdraw(last)
		synctest.Wait()
		if len(sent) == 0 {
			t.Error("the next attempt still waits")
		}
		q.Free()
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// Calls that hang count as under way. Here there are so many that a ramp would let no other call
// through.
func TestManyCallsThatHangDoNotLimitAServerThatAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		for range fullSpeed {
			if _, ok := q.Ask(true, true, 0); !ok {
				t.Fatal("a caller that needs the server is not let through")
			}
		}
		c, _ := q.Ask(true, true, 0)
		q.Answered(c, errDown)
		time.Sleep(maxPause)
		probe, _ := q.Ask(true, false, 1000)
		q.Answered(probe, nil)
		for range fullSpeed {
			if _, ok := q.Ask(true, false, 1000); !ok {
				t.Fatal("a server that answers gets no call because of calls that hang")
			}
		}
	})
}
