package locker_test

import (
	"context"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// looks counts how often contexts are asked for a value or their deadline.
type looks struct {
	mu    sync.Mutex
	n     int
	holds int // for a hold
	most  int // contexts of package locker that one look has passed; see deep
	deep  bool
}

// watched is a ctx that counts.
type watched struct {
	context.Context
	looks *looks
}

func (w watched) Value(key any) any {
	w.looks.count(locker.IsHoldKey(key))
	return w.Context.Value(key)
}

func (w watched) Deadline() (time.Time, bool) {
	w.looks.count(false)
	return w.Context.Deadline()
}

func (l *looks) count(forHold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if forHold {
		l.holds++
	}
	if l.deep {
		l.most = max(l.most, passed())
	}
}

var ofAContext = regexp.MustCompile(`/locker\.\(\*\w+Context\)\.`)

// passed is how many methods of contexts of package locker wait for the caller.
func passed() (n int) {
	callers := make([]uintptr, 4096)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); ofAContext.MatchString(frame.Function) {
			n++
		}
	}
	return n
}

// onBegin is middleware that makes a ctx for each hold.
func onBegin(begin func(ctx context.Context, key string) context.Context) contract.Middleware {
	return func(next locker.Locker) locker.Locker {
		return follower{next, func(call contract.Call) {
			call.OnHold(func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
				return begin(ctx, lease.Key), nil
			})
		}}
	}
}

func TestTheLooksForAKeyOfDoAllDoNotGrowWithTheNumberOfKeys(t *testing.T) {
	const few, many = 5, 100
	t.Run("at the ctx given", func(t *testing.T) {
		count := func(keys int) (n, most int) {
			given := looks{deep: true}
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				ctx := watched{t.Context(), &given}
				err := c.DoAll(ctx, manyKeys(keys), func(ctx context.Context, _ []*locker.Lock) error {
					_ = ctx.Value("a value")
					_, _ = ctx.Deadline()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			return given.n, given.most
		}
		n, most := count(few)
		if n == 0 || most == 0 {
			t.Fatalf("%d looks, which pass %d contexts: nothing is counted", n, most)
		}
		nMany, mostMany := count(many)
		if nMany > n*many/few {
			t.Errorf("%d keys take %d looks, and %d keys %d", few, n, many, nMany)
		}
		if mostMany != most {
			t.Errorf("a look passes %d contexts with %d keys, and %d with %d", most, few, mostMany, many)
		}
	})
	t.Run("at the holds", func(t *testing.T) {
		var holds looks
		bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
			c := locker.New(s, locker.WithMiddleware(onBegin(func(ctx context.Context, _ string) context.Context {
				return watched{ctx, &holds}
			})))
			err := c.DoAll(t.Context(), manyKeys(many), func(ctx context.Context, _ []*locker.Lock) error {
				if holds.holds > 0 {
					t.Errorf("%d looks for other holds, which are of other keys", holds.holds)
				}
				_, err := c.Lock(ctx, manyKeys(1)[0])
				if holds.holds == 0 {
					t.Error("no look from the work: nothing is counted")
				}
				return err
			})
			if err == nil || err.(*locker.Error).ErrorType() != "deadlock" {
				t.Errorf("DoAll = %v; want a deadlock", err)
			}
		})
	})
}

func TestALockOfDoAllHasTheValuesAndTheDeadlinesOfThoseAbove(t *testing.T) {
	type ofGiven struct{}
	type ofHold struct{ key string }
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		began := time.Now()
		c := locker.New(s, locker.WithMiddleware(onBegin(func(ctx context.Context, key string) context.Context {
			if key == "b" || key == "d" { // no middleware adds to a and c
				ctx = context.WithValue(ctx, ofHold{key}, key)
			}
			if key == "b" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
				t.Cleanup(cancel)
			}
			return ctx
		})))
		check := func(name string, ctx context.Context, holds string, limit time.Duration) {
			t.Helper()
			found := ""
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				if ctx.Value(ofHold{key}) != nil {
					found += key
				}
			}
			if found != holds || ctx.Value(ofGiven{}) != "value" {
				t.Errorf("%s: values of %q and %v; want %q and those of the given ctx", name, found, ctx.Value(ofGiven{}), holds)
			}
			if ends, _ := ctx.Deadline(); !ends.Equal(began.Add(limit)) {
				t.Errorf("%s: its deadline is after %v; want %v", name, ends.Sub(began), limit)
			}
		}
		given, cancel := context.WithTimeout(context.WithValue(t.Context(), ofGiven{}, "value"), time.Minute)
		defer cancel()
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if keys, _ := s.keys(); len(keys) == 3 {
				check("the attempt for c", ctx, "b", 10*time.Second)
			}
			return next()
		}
		err := c.DoAll(given, []string{"a", "b", "c", "d", "e"}, func(ctx context.Context, held []*locker.Lock) error {
			check("a", held[0].Context(), "", time.Minute)
			check("b", held[1].Context(), "b", 10*time.Second)
			check("c", held[2].Context(), "b", 10*time.Second)
			check("the work", ctx, "bd", 10*time.Second)
			<-ctx.Done()
			if took := time.Since(began); took != 10*time.Second || held[0].Context().Err() != nil {
				t.Errorf("the ctx of the work ended after %v, that of a: %v", took, held[0].Context().Err())
			}
			return nil
		})
		if err != nil {
			t.Errorf("DoAll = %v", err)
		}
	})
}

// A ctx that package context does not know as one of its own costs a goroutine each.
func TestTheContextsOfDoAllNeedNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		before := goroutines()
		err := c.DoAll(t.Context(), manyKeys(100), func(ctx context.Context, _ []*locker.Lock) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if more := goroutines() - before; more > 50 {
				t.Errorf("100 locks have %d goroutines", more)
			}
			return child.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
}
