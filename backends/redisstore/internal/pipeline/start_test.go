package pipeline

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// started is a call that is started, and waited for.
func started(c *Pipeline) Call {
	return func(ctx context.Context, args ...any) (reply any, err error) {
		done := make(chan struct{})
		c.Start(ctx, func(r any, e error) {
			reply, err = r, e
			close(done) // panics the second time
		}, args...)
		<-done
		return reply, err
	}
}

func TestWhatIsStartedSharesRoundTripsAndGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 2 * maxTogether
		w := &wire{trip: taking(rtt)}
		c := New(w.Once, w.OnceAll, w.Lane)
		before, most := runtime.NumGoroutine(), 0
		var answered atomic.Int32
		for range calls {
			c.Start(t.Context(), func(reply any, err error) {
				if reply != "a" || err != nil {
					t.Errorf("%v, %v", reply, err)
				}
				answered.Add(1)
			}, "SET", "a")
			most = max(most, runtime.NumGoroutine()-before)
		}
		if answered.Load() != 0 {
			t.Error("answered before it was sent")
		}
		began := time.Now()
		for answered.Load() < calls {
			time.Sleep(rtt / 4)
			most = max(most, runtime.NumGoroutine()-before)
		}
		if trips, _, _ := w.sent(""); trips > 2*sends || most > 2*sends || time.Since(began) > 3*rtt { // those that end, and the timer's, among them
			t.Errorf("%d round trips and %d goroutines, in %v", trips, most, time.Since(began))
		}
	})
}

func TestWhatIsStartedWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c := New(w.Once, w.OnceAll, w.Lane)
		release := busy(t, w, c.Send)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		var late, sent any
		c.Start(ctx, func(_ any, err error) { late = err }, "SET", "late")
		c.Start(t.Context(), func(reply any, _ error) { sent = reply }, "SET", "sent")
		if time.Since(began) != 0 {
			t.Error("it has waited")
		}
		time.Sleep(time.Nanosecond)
		release()
		synctest.Wait()
		if err, _ := late.(error); !outcome.Unsent(err) || !errors.Is(err, context.DeadlineExceeded) || sent != "sent" {
			t.Errorf("%v; %v", late, sent)
		}
	})
}

func TestWhatWasStartedAndIsToBeSentByItselfKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &leads{wire{trip: func(_ context.Context, commands []*driver.Command) error {
			if commands[0].Args[1] == "led" && len(commands) == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}}}
		c := New(w.Once, w.OnceAll, w.Lane)
		release := busy(t, &w.wire, c.Send)
		var all sync.WaitGroup
		for _, word := range []string{"led", "stays", "led", "stays"} {
			all.Add(1)
			began := time.Now()
			c.Start(t.Context(), func(reply any, err error) {
				if took := time.Since(began); reply != word || err != nil || (took == time.Hour) != (word == "led") {
					t.Errorf("%s = %v, %v in %v", word, reply, err, took)
				}
				all.Done()
			}, "SET", word)
		}
		release()
		all.Wait()
	})
}

func TestWhatWasStartedIsAnsweredByALibraryThatEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: func(_ context.Context, commands []*driver.Command) error {
			if commands[0].Args[1] == "bad" {
				runtime.Goexit()
			}
			return nil
		}}
		c := New(w.Once, w.OnceAll, w.Lane)
		for range 2 * sends {
			if reply, err := started(c)(t.Context(), "SET", "bad"); reply != nil || !errors.Is(err, ErrStranded) || outcome.Unsent(err) {
				t.Errorf("%v, %v", reply, err)
			}
		}
		release := busy(t, w, c.Send)
		var stranded atomic.Int32
		for _, word := range []string{"bad", "led", "led"} {
			c.Start(t.Context(), func(_ any, err error) {
				if errors.Is(err, ErrStranded) {
					stranded.Add(1)
				}
			}, "SET", word)
		}
		release()
		synctest.Wait()
		if stranded.Load() != 3 {
			t.Errorf("%d of 3 know", stranded.Load())
		}
		busy(t, w, c.Send)() // all permits are there
	})
}
