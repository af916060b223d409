package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

// fails is a round trip after which each command has an error by its word, unless it is the connection's.
type fails struct {
	wire
	replies map[string]error
}

func (f *fails) OnceAll(ctx context.Context, commands []*driver.Command) {
	f.wire.OnceAll(ctx, commands)
	for _, c := range commands {
		if err := f.replies[c.Args[1].(string)]; err != nil {
			c.Reply, c.Err = nil, err
		}
	}
}

func TestAnErrorReplyIsThatOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &driver.ReplyError{Text: "NOPERM no"}
		w := &fails{replies: map[string]error{"refused": refused}}
		send := New(w.Once, w.OnceAll, w.Lane).Send
		release := busy(t, &w.wire, send)
		var all sync.WaitGroup
		for _, word := range []string{"a", "refused", "b", "c"} {
			all.Go(func() {
				reply, err := send(t.Context(), "SET", word)
				if word == "refused" {
					if err != error(refused) || reply != nil {
						t.Errorf("%v, %v", reply, err)
					}
				} else if err != nil || reply != word {
					t.Errorf("%s = %v, %v", word, reply, err)
				}
			})
			synctest.Wait()
		}
		release()
		all.Wait()
	})
}

// leads elsewhere what says so.
type leads struct{ wire }

func (l *leads) OnceAll(ctx context.Context, commands []*driver.Command) {
	l.wire.OnceAll(ctx, commands)
	for _, c := range commands {
		if c.Args[1] == "led" {
			c.Reply, c.Err, c.Alone = nil, &driver.ReplyError{Text: "MOVED 1 there"}, true
		}
	}
}

func TestWhatIsToBeSentByItselfIsByItsOwnCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &leads{wire{trip: func(_ context.Context, commands []*driver.Command) error {
			if commands[0].Args[1] == "led" && len(commands) == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}}}
		send := New(w.Once, w.OnceAll, w.Lane).Send
		release := busy(t, &w.wire, send)
		var all sync.WaitGroup
		for _, word := range []string{"led", "stays", "led", "stays"} {
			all.Go(func() {
				began := time.Now()
				if reply, err := send(t.Context(), "SET", word); reply != word || err != nil {
					t.Errorf("%s = %v, %v", word, reply, err)
				}
				if took := time.Since(began); (took == time.Hour) != (word == "led") {
					t.Errorf("%s took %v", word, took)
				}
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		if w.calls["OnceAll"] != 1 || w.calls["Once"] != sends+2 {
			t.Errorf("sent by %v", w.calls)
		}
	})
}

func TestWhatIsToBeSentByItselfIsNotOnceItsCtxHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &leads{wire{trip: taking(rtt)}}
		send := New(w.Once, w.OnceAll, w.Lane).Send
		release := busy(t, &w.wire, send)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				reply, err := send(ctx, "SET", "led")
				if err == nil || !outcome.Unsent(err) || reply != nil { // MOVED says that nothing was done
					t.Errorf("%v, %v", reply, err)
				}
			})
		}
		synctest.Wait()
		time.AfterFunc(rtt/2, cancel)
		release()
		all.Wait()
		if _, _, sent := w.sent("led"); sent != 2 {
			t.Errorf("sent %d times", sent)
		}
	})
}

func TestAnErrorOfTheConnectionIsThatOfAllCallsInTheRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		w := &wire{trip: func(context.Context, []*driver.Command) error { return broken }}
		send := once(w)
		release := busy(t, w, send)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if reply, err := send(t.Context(), "SET", "a"); !errors.Is(err, broken) || outcome.Unsent(err) || reply != nil {
					t.Errorf("%v, %v", reply, err)
				}
			})
		}
		synctest.Wait()
		release()
		all.Wait()
	})
}

// together makes a call with each ctx, which travel in one round trip, led by the first.
func together(t *testing.T, w *wire, send Call, ctxs ...context.Context) (errs []error, took []time.Duration) {
	t.Helper()
	release := busy(t, w, send)
	errs, took = make([]error, len(ctxs)), make([]time.Duration, len(ctxs))
	var all sync.WaitGroup
	for i, ctx := range ctxs {
		all.Go(func() {
			began := time.Now()
			_, errs[i] = send(ctx, "SET", fmt.Sprint(i))
			took[i] = time.Since(began)
		})
		synctest.Wait()
	}
	release()
	all.Wait()
	if trips, _, _ := w.sent(""); trips != sends+1 {
		t.Errorf("%d round trips", trips)
	}
	return errs, took
}

// until takes so long or until its ctx ends, and then tells the ctx's error.
func until(d time.Duration) func(context.Context, []*driver.Command) error {
	return func(ctx context.Context, _ []*driver.Command) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ends are the ways for a ctx to end, by the error that it has then.
var ends = map[error]func(context.Context, time.Duration) (context.Context, context.CancelFunc){
	context.DeadlineExceeded: context.WithTimeout,
	context.Canceled: func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(after, cancel)
		return ctx, cancel
	},
}

func TestTheEndOfOneCtxDoesNotEndARoundTripThatIsShared(t *testing.T) {
	const trip = 500 * time.Millisecond
	for who := range 2 { // it leads, or is led
		for name, end := range ends {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{trip: until(trip)}
				ctxs := []context.Context{t.Context(), t.Context(), t.Context()}
				ctx, cancel := end(t.Context(), trip/50)
				defer cancel()
				ctxs[who] = ctx
				errs, took := together(t, w, once(w), ctxs...)
				for i, err := range errs {
					if err != nil || took[i] != trip { // also the one whose ctx ended: it has its answer
						t.Errorf("%v of %d: call %d = %v after %v", name, who, i, err, took[i])
					}
				}
			})
		}
	}
}

// A limit ends its own call only, however long the round trip takes: the others would not know
// their outcomes.
func TestARoundTripThatTakesLongGoesOnForTheCallsWhoseCtxsHaveNotEnded(t *testing.T) {
	for who := range 2 {
		for own, end := range ends {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{trip: until(time.Minute)}
				ctxs := []context.Context{t.Context(), t.Context(), t.Context()}
				ctx, cancel := end(t.Context(), 10*time.Millisecond)
				defer cancel()
				ctxs[who] = ctx
				errs, took := together(t, w, once(w), ctxs...)
				for i, err := range errs {
					if err != nil || took[i] != time.Minute {
						t.Errorf("%v of %d: call %d = %v after %v", own, who, i, err, took[i])
					}
				}
			})
		}
	}
}

// A server that never answers makes each outcome unknown, at the end of the last ctx.
func TestARoundTripWithoutAnAnswerEndsWithTheLastCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = time.Minute
		w := &wire{trip: until(time.Hour)}
		var ctxs []context.Context
		for _, after := range []time.Duration{time.Second, last, time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			ctxs = append(ctxs, ctx)
		}
		errs, took := together(t, w, once(w), ctxs...)
		for i, err := range errs {
			if took[i] != last || !errors.Is(err, context.DeadlineExceeded) || outcome.Unsent(err) {
				t.Errorf("call %d = %v after %v", i, err, took[i])
			}
		}
	})
}

func TestARoundTripEndsAtOnceWhenAllItsCtxsHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: until(time.Hour)}
		var ctxs []context.Context
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i+1)*time.Millisecond, cancel)
			ctxs = append(ctxs, ctx)
		}
		late, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		defer cancel()
		errs, took := together(t, w, once(w), append(ctxs, late)...)
		for i, err := range errs {
			if took[i] != 3*time.Millisecond || err == nil {
				t.Errorf("call %d = %v after %v", i, err, took[i])
			}
		}
	})
}

func TestTheCtxOfARoundTripHasTheLastDeadlineOfItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short, long = 250 * time.Millisecond, 3 * time.Second
		for _, c := range []struct {
			after []time.Duration // 0: endless
			want  time.Duration
		}{
			{[]time.Duration{0, 0}, 0},
			{[]time.Duration{short, 0}, 0},
			{[]time.Duration{long, 0}, 0},
			{[]time.Duration{short, long}, long},
			{[]time.Duration{long, short}, long},
			{[]time.Duration{long, 2 * long}, 2 * long},
			{[]time.Duration{short, 2 * short, short / 2}, 2 * short},
		} {
			var sent []*caller
			for _, after := range c.after {
				ctx := t.Context()
				if after > 0 {
					with, cancel := context.WithTimeout(ctx, after)
					defer cancel()
					ctx = with
				}
				sent = append(sent, &caller{ctx: ctx})
			}
			b := newBatch(sent)
			defer b.cancel()
			end, ok := b.ctx.Deadline()
			if ok != (c.want > 0) || ok && time.Until(end) != c.want {
				t.Errorf("of %v: %v, %v", c.after, time.Until(end), ok)
			}
		}
	})
}

// asked is a ctx that ends when it is asked whether it has, which it denies for the last time.
type asked struct {
	context.Context
	end func()
	was bool
}

func (a *asked) Err() error {
	if !a.was {
		a.was = true
		a.end()
		time.Sleep(time.Microsecond) // whoever waits for it has seen the end
		return nil
	}
	return a.Context.Err()
}

func TestACtxThatEndsAsItsCallIsTakenCountsLikeOneThatEndsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{trip: func(ctx context.Context, _ []*driver.Command) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return ctx.Err()
		}}
		l := &lane{Pipeline: &Pipeline{alone: w.Once, together: w.OnceAll}}
		ctx, cancel := context.WithCancel(t.Context())
		leads, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		l.mu.Lock()
		q := &caller{Command: driver.Command{Args: []any{"SET", "leads"}}, ctx: leads, state: leading, tenure: l.take(0)}
		other := l.caller(&asked{Context: ctx, end: cancel}, []any{"SET", "ends"}, nil)
		l.enqueue(other)
		l.mu.Unlock()
		go l.wait(other)
		synctest.Wait()
		began := time.Now()
		l.lead(q)
		if took := time.Since(began); took != time.Second { // the other one has ended before
			t.Errorf("the round trip took %v", took)
		}
		synctest.Wait()
	})
}

// A round trip has a ctx of its own. An error of it is told each call as if it had been sent alone.
func TestAnErrorOfASharedRoundTripIsThatOfEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trip, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		own, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second)
		b := &batch{over: true}
		err := driver.Fault(trip, "a:1", io.EOF)
		if err := b.explain(own, err); !errors.Is(err, context.DeadlineExceeded) || outcome.Permanent(err) || outcome.Unsent(err) {
			t.Errorf("of the call that has ended: %v", err)
		}
		err = b.explain(t.Context(), err)
		want := "server a:1: given up with a call in the same round trip that had no more time: EOF; the outcome is unknown"
		if err.Error() != want || errors.Is(err, context.DeadlineExceeded) || outcome.Permanent(err) || outcome.Unsent(err) || err.(*driver.WireError).ErrorType() != "timeout" {
			t.Errorf("of the call that goes on: %v", err)
		}
		if err := b.explain(t.Context(), driver.NotSent(trip, "a:1", io.EOF)); !outcome.Unsent(err) {
			t.Errorf("of a round trip that was not sent: %v", err)
		}
	})
}
