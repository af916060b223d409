package pipeline

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// wire is a Pipeliner that answers each command with its second word, and keeps what it was sent in
// which round trip.
type wire struct {
	driver.Executor
	trip func(ctx context.Context, commands []*driver.Command) error // nil: it takes no time

	mu    sync.Mutex
	trips [][]string
	words map[string]int
	calls map[string]int // Do, DoAll, …
}

func (w *wire) Do(ctx context.Context, args ...any) (any, error) { return w.one(ctx, "Do", args) }

func (w *wire) Once(ctx context.Context, args ...any) (any, error) { return w.one(ctx, "Once", args) }

func (w *wire) DoAll(ctx context.Context, commands []*driver.Command) { w.all(ctx, "DoAll", commands) }

func (w *wire) OnceAll(ctx context.Context, commands []*driver.Command) {
	w.all(ctx, "OnceAll", commands)
}

// Lane is the first word, unless it is SET.
func (w *wire) Lane(_ context.Context, args []any) any {
	if args[0] == "SET" {
		return nil
	}
	return args[0]
}

func (w *wire) one(ctx context.Context, name string, args []any) (any, error) {
	c := driver.Command{Args: args}
	w.all(ctx, name, []*driver.Command{&c})
	return c.Reply, c.Err
}

func (w *wire) all(ctx context.Context, name string, commands []*driver.Command) {
	w.mu.Lock()
	var words []string
	for _, c := range commands {
		words = append(words, c.Args[1].(string))
	}
	w.trips = append(w.trips, words)
	if w.calls == nil {
		w.words, w.calls = map[string]int{}, map[string]int{}
	}
	for _, word := range words {
		w.words[word]++
	}
	w.calls[name]++
	w.mu.Unlock()
	var err error
	if w.trip != nil {
		err = w.trip(ctx, commands)
	}
	for _, c := range commands {
		if c.Reply, c.Err = c.Args[1], err; err != nil {
			c.Reply = nil
		}
	}
}

// sent tells how many round trips there were, how many commands in all and how often word was among them.
func (w *wire) sent(word string) (trips, commands, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, trip := range w.trips {
		commands += len(trip)
	}
	return len(w.trips), commands, w.words[word]
}

// taking is a round trip of so long.
func taking(d time.Duration) func(context.Context, []*driver.Command) error {
	return func(context.Context, []*driver.Command) error { time.Sleep(d); return nil }
}

const rtt = overdue / 4

// busy makes calls that hold all permits of w's lane until the returned func is called, which waits
// for them. It gives one back first, so that all that is in the queue travels together.
func busy(t *testing.T, w *wire, send Call) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	var calls sync.WaitGroup
	_, _, already := w.sent("busy")
	before := w.trip
	w.trip = func(ctx context.Context, commands []*driver.Command) error {
		if commands[0].Args[1] == "busy" {
			<-gate
			return nil
		}
		if before == nil {
			return nil
		}
		return before(ctx, commands)
	}
	for range sends {
		calls.Go(func() {
			if reply, err := send(context.Background(), "SET", "busy"); reply != "busy" || err != nil {
				t.Errorf("a call that is alone = %v, %v", reply, err)
			}
		})
	}
	synctest.Wait()
	if _, _, sent := w.sent("busy"); sent-already != sends {
		t.Errorf("%d permits instead of %d", sent-already, sends)
	}
	return func() {
		gate <- struct{}{}
		synctest.Wait()
		close(gate)
		calls.Wait()
	}
}

func once(w *wire) Call { return New(w.Once, w.OnceAll, w.Lane).Send }
