package redisstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// trips is a Pipeliner that keeps the words of each round trip.
type trips struct {
	driver.Executor
	mu    sync.Mutex
	words [][]string
	by    map[string]int // Do, DoAll, …
}

func (w *trips) Do(_ context.Context, args ...any) (any, error) {
	return nil, w.all("Do", []*driver.Command{{Args: args}})
}

func (w *trips) Once(_ context.Context, args ...any) (any, error) {
	return nil, w.all("Once", []*driver.Command{{Args: args}})
}

func (w *trips) DoAll(_ context.Context, commands []*driver.Command) { _ = w.all("DoAll", commands) }
func (w *trips) OnceAll(_ context.Context, commands []*driver.Command) {
	_ = w.all("OnceAll", commands)
}
func (w *trips) Lane(context.Context, []any) any { return nil }

func (w *trips) all(by string, commands []*driver.Command) error {
	var words []string
	for _, c := range commands {
		words = append(words, c.Args[1].(string))
	}
	w.mu.Lock()
	w.words = append(w.words, words)
	w.by[by]++
	w.mu.Unlock()
	time.Sleep(100 * time.Microsecond)
	return nil
}

func TestDoAndOnceNeverShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &trips{by: map[string]int{}}
		s := New(w)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = s.line.do(t.Context(), "SET", "do") })
			all.Go(func() { _, _ = s.line.once(t.Context(), "SET", "once") })
		}
		all.Wait()
		for _, trip := range w.words {
			for _, word := range trip {
				if word != trip[0] {
					t.Fatalf("%v in one", trip)
				}
			}
		}
		if w.by["Do"] == 0 || w.by["Once"] == 0 || w.by["DoAll"] == 0 || w.by["OnceAll"] == 0 {
			t.Errorf("sent by %v", w.by)
		}
	})
}
