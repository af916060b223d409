package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// silent is a Pipeline of a wire with one connection that falls silent: what has the word "lead" in
// it is on that connection.
func silent(w *wire, answer func()) *Pipeline {
	w.trip = func(_ context.Context, commands []*driver.Command) error {
		if commands[0].Args[1] == "lead" {
			answer()
		}
		time.Sleep(rtt)
		return nil
	}
	p := New(w.Once, w.OnceAll, w.Lane)
	p.Leave(func(_ context.Context, args []any) bool { return args[1] != "must stay" })
	return p
}

// behind makes calls whose round trip falls silent, and other calls until stop is called.
func behind(t *testing.T, w *wire, p *Pipeline, words ...string) (wait func() (errs []error, took []time.Duration)) {
	t.Helper()
	release := busy(t, w, p.Send)
	var all sync.WaitGroup
	errs, took := make([]error, len(words)), make([]time.Duration, len(words))
	for i, word := range words {
		all.Go(func() {
			began := time.Now()
			reply, err := p.Send(t.Context(), "SET", word)
			if errs[i], took[i] = err, time.Since(began); err == nil && reply != word {
				t.Errorf("%s = %v", word, reply)
			}
		})
		synctest.Wait()
	}
	release()
	return func() ([]error, []time.Duration) { all.Wait(); return errs, took }
}

// others makes calls, three at a time so that they share round trips, for so long.
func others(t *testing.T, p *Pipeline, d time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; {
		var all sync.WaitGroup
		for range 3 * sends {
			all.Go(func() {
				if reply, err := p.Send(t.Context(), "SET", "other"); reply != "other" || err != nil {
					t.Errorf("another call = %v, %v", reply, err)
				}
			})
		}
		all.Wait()
		time.Sleep(10 * time.Millisecond)
	}
}

// The call that leads runs on the goroutine of its caller, and one that must stay has nobody who would
// clean up when it is over.
func TestCallsOnASilentConnectionAreLeftWhenLaterOnesAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 5 * time.Second
		w := &wire{}
		p := silent(w, func() { time.Sleep(silence) })
		wait := behind(t, w, p, "lead", "a", "must stay", "b")
		others(t, p, time.Second)
		errs, took := wait()
		for _, stays := range []int{0, 2} {
			if errs[stays] != nil || took[stays] < silence {
				t.Errorf("call %d = %v after %v", stays, errs[stays], took[stays])
			}
		}
		for _, left := range []int{1, 3} {
			late, ok := errs[left].(*OvertakenError)
			if !ok || cleanup.Unsent(late) || !errors.Is(late, os.ErrDeadlineExceeded) || took[left] < lateBy || took[left] > lateBy+100*time.Millisecond {
				t.Fatalf("call %d = %v after %v", left, errs[left], took[left])
			}
		}
		for _, word := range []string{"lead", "a", "must stay", "b"} {
			if _, _, times := w.sent(word); times != 1 {
				t.Errorf("%s was sent %d times", word, times)
			}
		}
	})
}

// While nothing is answered, it may be the server that is slow. Another attempt would only add to its load.
func TestNoCallIsLeftWhileTheServerAnswersNothing(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, p *Pipeline){
		"no other calls": func(*testing.T, *Pipeline) {},
		"others without an answer": func(t *testing.T, p *Pipeline) {
			var all sync.WaitGroup
			for range 10 * sends {
				all.Go(func() { _, _ = p.Send(t.Context(), "SET", "lead") })
			}
			all.Wait()
		},
		"others that were sent hardly later": func(t *testing.T, p *Pipeline) {
			time.Sleep(lateBy - 10*time.Millisecond)
			others(t, p, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{}
				p := silent(w, func() { time.Sleep(5 * time.Second) })
				wait := behind(t, w, p, "lead", "a", "b")
				then(t, p)
				errs, _ := wait()
				if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
					t.Errorf("call %d = %v", i, errs[i])
				}
			})
		})
	}
}

// Round trips of one connection may take up to twice as long as those of another.
func TestNoCallIsLeftOnTheWayToAServerFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: func(context.Context, []*driver.Command) error {
			time.Sleep(time.Second + rand.N(time.Second))
			return nil
		}}
		p := New(w.Once, w.OnceAll, w.Lane)
		p.Leave(func(context.Context, []any) bool { return true })
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				for range 20 {
					time.Sleep(rand.N(100 * time.Millisecond))
					if _, err := p.Send(t.Context(), "SET", "a"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// An error of the whole round trip is no answer.
func TestOnlyAnAnswerOvertakes(t *testing.T) {
	for want, failure := range map[bool]error{false: errors.New("broken"), true: &driver.ReplyError{Text: "ERR a reply"}} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{}
			p := silent(w, func() { time.Sleep(time.Second) })
			trip := w.trip
			w.trip = func(ctx context.Context, commands []*driver.Command) error {
				if commands[0].Args[1] == "fails" {
					return failure
				}
				return trip(ctx, commands)
			}
			wait := behind(t, w, p, "lead", "a")
			time.Sleep(2 * lateBy)
			p.unnamed.mu.Lock()
			p.unnamed.company = crowd // so that it leads
			p.unnamed.mu.Unlock()
			if _, err := p.Send(t.Context(), "SET", "fails"); !errors.Is(err, failure) {
				t.Errorf("%v", err)
			}
			errs, _ := wait()
			if _, left := errs[1].(*OvertakenError); left != want {
				t.Errorf("after %v: %v", failure, errs[1])
			}
		})
	}
}

// Whoever cleans up after a call that was left is told when it is over, before or after it asks.
func TestTheEndOfACallThatWasLeftIsTold(t *testing.T) {
	broken := errors.New("broken")
	for name, end := range map[string]struct {
		as   func(ctx context.Context) error
		want error
	}{
		"an answer": {func(context.Context) error { return nil }, nil},
		"a reply":   {func(context.Context) error { return &driver.ReplyError{Text: "ERR"} }, nil},
		"an error":  {func(context.Context) error { return broken }, broken},
		"its panic": {func(context.Context) error { panic("broken") }, ErrStranded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{}
				p := silent(w, func() {})
				trip := w.trip
				w.trip = func(ctx context.Context, commands []*driver.Command) error {
					if commands[0].Args[1] == "lead" {
						time.Sleep(5 * time.Second)
						return end.as(ctx)
					}
					return trip(ctx, commands)
				}
				release := busy(t, w, p.Send)
				began := time.Now()
				var all sync.WaitGroup
				var told [2]time.Duration
				all.Go(func() {
					defer func() { _ = recover() }()
					_, _ = p.Send(t.Context(), "SET", "lead")
				})
				synctest.Wait()
				for i, asks := range []time.Duration{0, 10 * time.Second} {
					all.Go(func() {
						_, err := p.Send(t.Context(), "SET", "a")
						late, ok := err.(*OvertakenError)
						if !ok {
							t.Errorf("%v", err)
							return
						}
						time.Sleep(asks)
						late.Later(func(err error) {
							if !errors.Is(err, end.want) || (err == nil) != (end.want == nil) || told[i] != 0 {
								t.Errorf("told %v after %v; want %v", err, told[i], end.want)
							}
							told[i] = time.Since(began)
						})
					})
				}
				synctest.Wait()
				release()
				others(t, p, time.Second)
				all.Wait()
				time.Sleep(time.Hour)
				if told[0] < 5*time.Second || told[0] > 6*time.Second || told[1] < 10*time.Second || told[1] > 11*time.Second {
					t.Errorf("told after %v", told)
				}
			})
		})
	}
}

// A round trip ends with the ctxs of those that still wait.
func TestARoundTripThatAllHaveLeftEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		p := silent(w, func() {})
		trip := w.trip
		w.trip = func(ctx context.Context, commands []*driver.Command) error {
			if commands[0].Args[1] == "lead" {
				return until(time.Hour)(ctx, commands)
			}
			return trip(ctx, commands)
		}
		release := busy(t, w, p.Send)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, word := range []string{"lead", "a", "b"} {
			all.Go(func() {
				began, own := time.Now(), t.Context()
				if word == "lead" {
					own = ctx
				}
				if _, err := p.Send(own, "SET", word); err == nil || time.Since(began) > 2*time.Second {
					t.Errorf("%s = %v after %v", word, err, time.Since(began))
				}
			})
			synctest.Wait()
		}
		release()
		others(t, p, 500*time.Millisecond)
		all.Wait()
	})
}

// Whatever is silent: each call is sent once, and is answered, or left and its end told once.
func TestManyCallsBesideConnectionsThatFallSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		w := &wire{trip: func(context.Context, []*driver.Command) error {
			if rand.N(20) > 0 {
				time.Sleep(rtt)
				return nil
			}
			time.Sleep(rand.N(2 * time.Second))
			if rand.N(2) == 0 {
				return broken
			}
			return nil
		}}
		p := New(w.Once, w.OnceAll, w.Lane)
		p.Leave(func(context.Context, []any) bool { return rand.N(4) > 0 })
		var all sync.WaitGroup
		var left, told, answered atomic.Int64
		for g := range 100 {
			all.Go(func() {
				for i := range 50 {
					word := fmt.Sprint(g, ".", i)
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Second))
					reply, err := p.Send(ctx, "SET", word)
					cancel()
					late, isLeft := err.(*OvertakenError)
					switch {
					case isLeft:
						left.Add(1)
						late.Later(func(error) { told.Add(1) })
					case err == nil && reply == word:
						answered.Add(1)
					case !errors.Is(err, broken) && !cleanup.Unsent(err):
						t.Errorf("%s = %v, %v", word, reply, err)
					}
					if _, _, times := w.sent(word); times != 1 && !cleanup.Unsent(err) {
						t.Errorf("%s was sent %d times", word, times)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		if left.Load() == 0 || left.Load() != told.Load() || answered.Load() == 0 {
			t.Errorf("%d were left, the end of %d was told, and %d answered", left.Load(), told.Load(), answered.Load())
		}
		if n := len(p.unnamed.under); n != 0 {
			t.Errorf("%d round trips are still counted", n)
		}
	})
}
