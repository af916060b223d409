package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/starting"
)

// A quorum finds the calls by this.
var _ starting.Store = (*Store)(nil)

// started is a call that is started, and waited for.
func started(c *combiner) call {
	return func(ctx context.Context, args ...any) (reply any, err error) {
		done := make(chan struct{})
		c.start(ctx, func(r any, e error) {
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
		c := combine(w.Once, w.OnceAll, w.Lane)
		before, most := runtime.NumGoroutine(), 0
		var answered atomic.Int32
		for range calls {
			c.start(t.Context(), func(reply any, err error) {
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
		c := combine(w.Once, w.OnceAll, w.Lane)
		release := busy(t, w, c.send)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		var late, sent any
		c.start(ctx, func(_ any, err error) { late = err }, "SET", "late")
		c.start(t.Context(), func(reply any, _ error) { sent = reply }, "SET", "sent")
		if time.Since(began) != 0 {
			t.Error("it has waited")
		}
		time.Sleep(time.Nanosecond)
		release()
		synctest.Wait()
		if err, _ := late.(error); !cleanup.Unsent(err) || !errors.Is(err, context.DeadlineExceeded) || sent != "sent" {
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
		c := combine(w.Once, w.OnceAll, w.Lane)
		release := busy(t, &w.wire, c.send)
		var all sync.WaitGroup
		for _, word := range []string{"led", "stays", "led", "stays"} {
			all.Add(1)
			began := time.Now()
			c.start(t.Context(), func(reply any, err error) {
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
		c := combine(w.Once, w.OnceAll, w.Lane)
		for range 2 * sends {
			if reply, err := started(c)(t.Context(), "SET", "bad"); reply != nil || !errors.Is(err, errStranded) || cleanup.Unsent(err) {
				t.Errorf("%v, %v", reply, err)
			}
		}
		release := busy(t, w, c.send)
		var stranded atomic.Int32
		for _, word := range []string{"bad", "led", "led"} {
			c.start(t.Context(), func(_ any, err error) {
				if errors.Is(err, errStranded) {
					stranded.Add(1)
				}
			}, "SET", word)
		}
		release()
		synctest.Wait()
		if stranded.Load() != 3 {
			t.Errorf("%d of 3 know", stranded.Load())
		}
		busy(t, w, c.send)() // all permits are there
	})
}

// says is an executor that answers by a function.
type says struct {
	driver.Executor
	once func(args []any) (any, error)
}

func (s says) Once(_ context.Context, args ...any) (any, error) { return s.once(args) }

// saysAll is one that is a Pipeliner, perhaps of a cluster.
type saysAll struct {
	says
	lane    func() any
	cluster bool
}

func (s saysAll) OnceAll(_ context.Context, commands []*driver.Command) {
	for _, c := range commands {
		c.Reply, c.Err = s.once(c.Args)
	}
}

func (s saysAll) DoAll(ctx context.Context, commands []*driver.Command) { s.OnceAll(ctx, commands) }
func (s saysAll) Lane(context.Context, []any) any                       { return s.lane() }
func (s saysAll) Clustered() bool                                       { return s.cluster }

func TestAClusterThatCannotTellItsServersYetKeepsNobodyWaitingWhoStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := map[any]any{"SET": "OK", "EVALSHA": int64(1)}
		exec := says{once: func(args []any) (any, error) { return answer[args[0]], nil }}
		s := New(saysAll{says: exec, cluster: true, lane: func() any { time.Sleep(time.Hour); return nil }})
		var answered atomic.Int32
		began := time.Now()
		s.StartSetNX(t.Context(), "k", "t", time.Second, func(r backends.Result, err error) {
			if !r.OK || err != nil {
				t.Errorf("%v, %v", r, err)
			}
			answered.Add(1)
		})
		if time.Since(began) != 0 {
			t.Error("SetNX has waited")
		}
		time.Sleep(2 * time.Hour)
		began = time.Now()
		s.StartDeleteIf(t.Context(), "k", "t", func(ok bool, err error) {
			if !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			answered.Add(1)
		})
		if time.Since(began) != 0 {
			t.Error("DeleteIf has waited")
		}
		time.Sleep(2 * time.Hour)
		if n := answered.Load(); n != 2 {
			t.Errorf("%d answers", n)
		}
	})
}

func TestWhatWasStartedIsAnsweredWhereverTheLibraryEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := func(on string) says {
			return says{once: func(args []any) (any, error) {
				if args[0] == on {
					runtime.Goexit()
				}
				if args[0] == "EVALSHA" {
					return nil, &driver.ReplyError{Text: "NOSCRIPT it is new"}
				}
				return nil, nil
			}}
		}
		one := func() any { return nil }
		for name, exec := range map[string]driver.Executor{
			"by itself":            ends("SET"),
			"together":             saysAll{says: ends("SET"), lane: one},
			"the script after SET": saysAll{says: ends("EVAL"), lane: one},
		} {
			var got error
			New(exec).StartSetNX(t.Context(), "k", "t", time.Second, func(_ backends.Result, err error) { got = err })
			synctest.Wait()
			if !errors.Is(got, errStranded) {
				t.Errorf("SetNX, %s: %v", name, got)
			}
		}
		for name, exec := range map[string]driver.Executor{
			"by itself":        ends("EVALSHA"),
			"together":         saysAll{says: ends("EVALSHA"), lane: one},
			"the whole script": saysAll{says: ends("EVAL"), lane: one},
		} {
			var got error
			New(exec).StartDeleteIf(t.Context(), "k", "t", func(_ bool, err error) { got = err })
			synctest.Wait()
			if !errors.Is(got, errStranded) {
				t.Errorf("DeleteIf, %s: %v", name, got)
			}
		}
	})
}

func TestAClusterIsNotOneServer(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		if s := New(saysAll{says: says{}, cluster: cluster}); s.OneServer() == cluster {
			t.Errorf("of a cluster %v: OneServer = %v", cluster, s.OneServer())
		}
	}
}
