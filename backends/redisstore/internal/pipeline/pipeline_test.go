package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

func TestACallThatIsAloneIsSentByItselfWithItsOwnCtx(t *testing.T) {
	type key struct{}
	w := &wire{trip: func(ctx context.Context, _ []*driver.Command) error {
		if ctx.Value(key{}) != "own" {
			t.Error("the ctx is not the caller's")
		}
		return nil
	}}
	send := once(w)
	for range 10 {
		if reply, err := send(context.WithValue(t.Context(), key{}, "own"), "SET", "a"); reply != "a" || err != nil {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	if w.calls["Once"] != 10 || len(w.calls) != 1 {
		t.Errorf("sent by %v", w.calls)
	}
}

func TestACallThatIsAloneAllocatesNothing(t *testing.T) {
	args := []any{"SET", "a"}
	send := New(
		func(context.Context, ...any) (any, error) { return nil, nil },
		func(context.Context, []*driver.Command) {},
		func(context.Context, []any) any { return nil },
	).Send
	if n := testing.AllocsPerRun(100, func() { _, _ = send(context.Background(), args...) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCallsMadeTogetherShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = sends + 2*maxTogether + 1
		w := &wire{trip: taking(rtt)}
		send := once(w)
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				word := fmt.Sprint(i)
				if reply, err := send(t.Context(), "SET", word); reply != word || err != nil {
					t.Errorf("call %s = %v, %v", word, reply, err)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if trips, commands, _ := w.sent(""); trips != sends+3 || commands != calls || time.Since(began) != 2*rtt {
			t.Errorf("%d commands in %d round trips within %v", commands, trips, time.Since(began))
		}
		for _, trip := range w.trips {
			if len(trip) > maxTogether {
				t.Errorf("%d commands in one", len(trip))
			}
		}
	})
}

func TestRenewalsOfManyLocksTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, calls = 256, 20 // as many as a Client extends at once
		var under, most atomic.Int32
		w := &wire{trip: func(context.Context, []*driver.Command) error {
			most.Store(max(most.Load(), under.Add(1)))
			time.Sleep(rtt)
			under.Add(-1)
			return nil
		}}
		send := New(w.Do, w.DoAll, w.Lane).Send
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				for range calls {
					if _, err := send(t.Context(), "SET", "a"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		company := 0 // that a command has, in all
		for _, trip := range w.trips {
			company += len(trip) * len(trip)
		}
		if _, commands, _ := w.sent(""); commands != atOnce*calls || company/commands < maxTogether/2 {
			t.Errorf("%d commands in %d round trips", commands, len(w.trips))
		}
		if n := most.Load(); n > sends { // none was overdue
			t.Errorf("%d round trips at once", n)
		}
	})
}

// Goroutines that are answered together call again at about the same time. After a round trip of
// many, a call that finds a permit yields first, and takes along what comes meanwhile, although
// other permits are free. What runs while it yields is up to the scheduler, so the test decides it
// here: all the others call.
func TestThoseWhoAreAnsweredTogetherTravelTogether(t *testing.T) {
	for _, together := range []int{2, crowd - 1, crowd, 60, maxTogether} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{trip: taking(rtt)}
			c := New(w.Once, w.OnceAll, w.Lane)
			var all sync.WaitGroup
			call := func(word string) {
				all.Go(func() {
					if reply, err := c.Send(t.Context(), "SET", word); reply != word || err != nil {
						t.Errorf("call %s = %v, %v", word, reply, err)
					}
				})
			}
			release := busy(t, w, c.Send)
			for range together {
				call("first")
			}
			synctest.Wait()
			release() // and all of them travel together
			all.Wait()

			before, yields := len(w.trips), 0
			c.yield = func() {
				yields++
				for range together - 1 {
					call("again")
				}
				synctest.Wait()
			}
			call("again")
			all.Wait()
			want, wantYields := together, 1
			if together < crowd {
				want, wantYields = 1, 0
			}
			if trips := w.trips[before:]; len(trips) != 1 || len(trips[0]) != want || yields != wantYields {
				t.Errorf("after a round trip of %d: %d yields instead of %d, then %v instead of one round trip of %d",
					together, yields, wantYields, trips, want)
			}
		})
	}
}

// One that came alone, in between, says little about those who travelled together. After some of
// them, nobody waits for company.
func TestCompanyIsForgottenByHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: taking(rtt)}
		c := New(w.Once, w.OnceAll, w.Lane)
		yields := 0
		c.yield = func() { yields++ }
		c.unnamed.company = 4 * crowd
		for call, want := range []int{1, 2, 3, 3, 3} {
			if _, err := c.Send(t.Context(), "SET", "a"); err != nil || yields != want {
				t.Errorf("call %d: %v, %d yields instead of %d", call, err, yields, want)
			}
		}
	})
}

// A call that yields while half of the last round trip waits already would only lose time.
func TestACallYieldsOnlyWhileFewOthersWait(t *testing.T) {
	for queued, want := range map[int]int{0: 1, crowd - 1: 1, crowd: 0, 2 * crowd: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{trip: taking(rtt)}
			c := New(w.Once, w.OnceAll, w.Lane)
			yields := 0
			c.yield = func() { yields++ }
			release := busy(t, w, c.Send)
			var all sync.WaitGroup
			for range 1 + queued {
				all.Go(func() { _, _ = c.Send(t.Context(), "SET", "a") })
			}
			synctest.Wait()
			c.unnamed.mu.Lock()
			c.unnamed.company = 2 * crowd
			c.unnamed.mu.Unlock()
			release()
			all.Wait()
			if yields != want {
				t.Errorf("%d yields beside %d calls that wait, want %d", yields, queued, want)
			}
		})
	}
}

// Where a round trip takes long, a call waits little longer than that, however many are made at once.
func TestNobodyWaitsForTheRoundTripOfAnother(t *testing.T) {
	for _, trip := range []time.Duration{10 * overdue, 100 * overdue} {
		synctest.Test(t, func(t *testing.T) {
			send := once(&wire{trip: taking(trip)})
			var all sync.WaitGroup
			for range 10 * maxTogether {
				all.Go(func() {
					for range 10 {
						began := time.Now()
						_, err := send(t.Context(), "SET", "a")
						if took := time.Since(began); took > trip+5*overdue || err != nil {
							t.Errorf("%v after %v beside round trips of %v", err, took, trip)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestACallThatEndsInTheQueueIsNeverSentAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: taking(rtt)}
		send := once(w)
		release := busyFor(t, w, send, time.Millisecond/4)
		ended, cancel := context.WithCancel(t.Context())
		late, cancelLate := context.WithTimeout(t.Context(), time.Millisecond/8)
		defer cancelLate()
		var all sync.WaitGroup
		for ctx, want := range map[context.Context]error{ended: context.Canceled, late: context.DeadlineExceeded} {
			for range 3 {
				all.Go(func() {
					began := time.Now()
					_, err := send(ctx, "SET", "withdrawn")
					if !errors.Is(err, want) || !outcome.Unsent(err) || outcome.Permanent(err) {
						t.Errorf("%v, want %v", err, want)
					}
					if took := time.Since(began); took > time.Millisecond/8 {
						t.Errorf("it took %v", took)
					}
				})
			}
		}
		synctest.Wait() // they are first in the queue
		all.Go(func() {
			if reply, err := send(t.Context(), "SET", "stays"); reply != "stays" || err != nil {
				t.Errorf("%v, %v", reply, err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()
		release()
		if _, commands, withdrawn := w.sent("withdrawn"); withdrawn != 0 || commands != sends+1 {
			t.Errorf("%d of %d commands were to be withdrawn", withdrawn, commands)
		}
		busy(t, w, send)() // no permit has gone to who was not there any more
	})
}

// busyFor is busy, released after d.
func busyFor(t *testing.T, w *wire, send Call, d time.Duration) (wait func()) {
	t.Helper()
	release := busy(t, w, send)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(d)
		release()
	}()
	return func() { <-done }
}

// mute ends without telling anybody: what looks at it only when it waits would not know.
type mute struct {
	context.Context
	err atomic.Pointer[error]
}

func (*mute) Done() <-chan struct{} { return nil }

func (m *mute) Err() error {
	if err := m.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (m *mute) end(err error) { m.err.Store(&err) }

func TestACallWhoseCtxHasEndedIsNotSentWhenItsTurnComes(t *testing.T) {
	for first := range 2 { // who leads, or is led
		synctest.Test(t, func(t *testing.T) {
			w := &wire{}
			send := once(w)
			release := busy(t, w, send)
			ctx := &mute{Context: context.Background()}
			var all sync.WaitGroup
			withdrawn := func() {
				if _, err := send(ctx, "SET", "withdrawn"); !errors.Is(err, context.Canceled) || !outcome.Unsent(err) {
					t.Errorf("%v", err)
				}
			}
			stays := func() {
				if reply, err := send(t.Context(), "SET", "stays"); reply != "stays" || err != nil {
					t.Errorf("%v, %v", reply, err)
				}
			}
			for i := range 4 {
				if i%2 == first {
					all.Go(withdrawn)
				} else {
					all.Go(stays)
				}
				synctest.Wait()
			}
			ctx.end(context.Canceled)
			release()
			all.Wait()
			if _, commands, withdrawn := w.sent("withdrawn"); withdrawn != 0 || commands != sends+2 {
				t.Errorf("%d of %d commands were to be withdrawn", withdrawn, commands)
			}
		})
	}
}

func TestSendsThatHangDoNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: taking(rtt)}
		send := once(w)
		release := busy(t, w, send)
		for range 3 {
			var all sync.WaitGroup
			for range 10 * sends {
				all.Go(func() {
					began := time.Now()
					if reply, err := send(t.Context(), "SET", "a"); reply != "a" || err != nil {
						t.Errorf("%v, %v", reply, err)
					}
					if took := time.Since(began); took > 2*overdue+2*rtt {
						t.Errorf("it took %v", took)
					}
				})
			}
			all.Wait()
		}
		began := time.Now()
		if _, err := send(t.Context(), "SET", "a"); err != nil || time.Since(began) != rtt {
			t.Errorf("%v after %v: those that hang still count", err, time.Since(began))
		}
		release()
		busy(t, w, send)()
	})
}

func TestASendThatComesBackLateGivesNoPermitBackThatIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w := &wire{trip: func(context.Context, []*driver.Command) error { <-gate; return nil }}
		send := once(w)
		release := busy(t, w, send)
		var all sync.WaitGroup
		hang := func() { _, _ = send(t.Context(), "SET", "hangs") }
		all.Go(hang)
		time.Sleep(2 * overdue) // has one of the permits now
		release()
		for range sends {
			all.Go(hang)
		}
		synctest.Wait()
		if _, _, sent := w.sent("hangs"); sent != sends {
			t.Errorf("%d under way at once", sent)
		}
		close(gate)
		all.Wait()
	})
}

func TestMoreThanFitsIsSentAlthoughAllElseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = sends + (sends+2)*maxTogether
		gate := make(chan struct{})
		w := &wire{trip: func(context.Context, []*driver.Command) error { <-gate; return nil }}
		send := once(w)
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { _, _ = send(t.Context(), "SET", "hangs") })
		}
		time.Sleep(5 * overdue)
		if _, _, sent := w.sent("hangs"); sent != calls {
			t.Errorf("%d of %d are sent", sent, calls)
		}
		close(gate)
		all.Wait()
	})
}

func TestAServerThatHangsKeepsOnlyItsOwnLaneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: taking(rtt)}
		send := once(w)
		release := busy(t, w, send)
		began := time.Now()
		if reply, err := send(t.Context(), "another server", "a"); reply != "a" || err != nil || time.Since(began) != rtt {
			t.Errorf("%v, %v after %v", reply, err, time.Since(began))
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = send(t.Context(), "another server", "a") })
			all.Go(func() { _, _ = send(t.Context(), "a third", "b") })
		}
		all.Wait()
		for _, trip := range w.trips {
			for _, word := range trip {
				if word != trip[0] {
					t.Fatalf("%v in one", trip)
				}
			}
		}
		release()
	})
}

func TestALibraryThatPanicsLeavesNobodyBehind(t *testing.T) {
	for name, how := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{trip: func(_ context.Context, commands []*driver.Command) error {
				if commands[0].Args[1] == "bad" {
					how()
				}
				return nil
			}}
			send := once(w)
			var all sync.WaitGroup
			for range 2 * sends { // alone
				all.Go(func() {
					defer func() { _ = recover() }()
					_, _ = send(t.Context(), "SET", "bad")
					t.Error("it came back")
				})
				all.Wait()
			}
			release := busy(t, w, send)
			all.Go(func() {
				defer func() { _ = recover() }()
				_, _ = send(t.Context(), "SET", "bad")
				t.Error("it came back")
			})
			synctest.Wait()
			for range 3 {
				all.Go(func() {
					if _, err := send(t.Context(), "SET", "led"); !errors.Is(err, ErrStranded) || outcome.Unsent(err) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			synctest.Wait()
			release()
			all.Wait()
			busy(t, w, send)() // all permits are there
		})
	}
}

// Whatever comes together: each call has its own answer, and was sent once, or not at all if it says so.
func TestManyCallsWithAllKindsOfEnds(t *testing.T) {
	broken := errors.New("broken")
	w := &wire{trip: func(ctx context.Context, commands []*driver.Command) error {
		switch rand.IntN(20) {
		case 0:
			return broken
		case 1:
			return until(3*overdue)(ctx, commands)
		}
		runtime.Gosched()
		return nil
	}}
	c := New(w.Once, w.OnceAll, w.Lane)
	ways := []Call{c.Send, started(c)}
	const goroutines, calls = 40, 200
	var unsent, answered, unknown atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range calls {
				word := fmt.Sprint(g, ".", i)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				switch rand.IntN(4) {
				case 0:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(overdue))))
				case 1:
					ctx, cancel = context.WithCancel(ctx)
					go cancel()
				}
				reply, err := ways[rand.IntN(2)](ctx, "SET", word)
				cancel()
				times := 0
				switch {
				case err == nil && reply == word:
					times = 1
					answered.Add(1)
				case outcome.Unsent(err):
					unsent.Add(1)
				case errors.Is(err, broken) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
					times = 1
					unknown.Add(1)
				default:
					t.Errorf("%s = %v, %v", word, reply, err)
				}
				w.mu.Lock()
				n := w.words[word]
				w.mu.Unlock()
				if n != times {
					t.Errorf("%s was sent %d times: %v, %v", word, n, reply, err)
				}
			}
		})
	}
	all.Wait()
	trips, commands, _ := w.sent("")
	if total := unsent.Load() + answered.Load() + unknown.Load(); total != goroutines*calls || int64(commands) != total-unsent.Load() {
		t.Errorf("%d calls, %d of them not sent; %d commands", total, unsent.Load(), commands)
	}
	if trips >= commands || unsent.Load() == 0 || unknown.Load() == 0 {
		t.Errorf("%d commands in %d round trips, %d calls not sent, %d unknown: not what this test is for", commands, trips, unsent.Load(), unknown.Load())
	}
}

// A permit can come at the moment at which the ctx ends.
func TestALeaderWhoseCtxHasEndedSendsNothingAndHandsItsPermitOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		l := &lane{Pipeline: &Pipeline{alone: w.Once, together: w.OnceAll}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.mu.Lock()
		q := &caller{Command: driver.Command{Args: []any{"SET", "ended"}}, ctx: ctx, state: leading, tenure: l.take(0)}
		next := l.caller(t.Context(), []any{"SET", "next"}, nil)
		l.enqueue(next)
		l.mu.Unlock()
		l.lead(q)
		if !errors.Is(q.Err, context.Canceled) || !outcome.Unsent(q.Err) || q.Err.Error() != "not sent: context canceled" || len(w.calls) != 0 {
			t.Errorf("%v, sent by %v", q.Err, w.calls)
		}
		if reply, err := l.wait(next); reply != "next" || err != nil {
			t.Errorf("the next = %v, %v", reply, err)
		}
	})
}
