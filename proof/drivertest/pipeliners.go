package drivertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// pipelinedStores and pipeliners are sentences about commands that are sent together.
var pipelinedStores = []storeSentence{
	{"of commands together, only what may be sent twice is", togetherOnce},
	{"commands together end with their ctx", togetherEnd},
}

var pipeliners = []executorSentence{
	{"commands together are answered in order, with errors in their position", together},
	{"commands together that found no server were not sent", togetherUnsent},
}

// pipelinerOf fails t if e is no Pipeliner.
func pipelinerOf(t *testing.T, e driver.Executor) driver.Pipeliner {
	t.Helper()
	p, ok := e.(driver.Pipeliner)
	if !ok {
		t.Fatal("the Executor is no driver.Pipeliner, so each call costs a round trip: " +
			"implement Pipeliner, or set NoPipeline if the client library has no pipelines")
	}
	return p
}

func noPipeline(t *testing.T, h Harness) {
	e := h.Connect(t, Server{Addr: redistest.Start(t).Addr()}).Executor
	if _, ok := e.(driver.Pipeliner); ok && h.NoPipeline {
		t.Error("the Executor is a driver.Pipeliner: do not set NoPipeline")
	}
}

func together(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	e := pipelinerOf(t, open(t, Server{Addr: redistest.Start(t).Addr()}))
	for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
		var commands []*driver.Command
		for _, args := range [][]any{
			{"SET", name, "1"}, {"LPUSH", name, "x"}, {"GET", "nothing"}, {"EVAL", "return {1, 'a', false, {}}", 0}, {"GET", name},
		} {
			commands = append(commands, &driver.Command{Args: args})
		}
		all(t.Context(), commands)
		const wrong errorText = "WRONGTYPE Operation against a key holding the wrong kind of value"
		for i, want := range []any{"OK", wrong, nil, []any{int64(1), "a", nil, []any{}}, "1"} {
			c := commands[i]
			got := texts(c.Reply)
			if c.Err != nil {
				got = texts(c.Err)
			}
			_, isReply := c.Err.(*driver.ReplyError) //nolint:errorlint // it is not wrapped
			if !reflect.DeepEqual(got, want) || (c.Err != nil) != isReply || c.Alone {
				t.Errorf("%s: %v = %#v, %v", name, c.Args, c.Reply, c.Err)
			}
		}
	}
}

func increments(n int) (commands []*driver.Command) {
	for i := range n {
		commands = append(commands, &driver.Command{Args: []any{"INCR", fmt.Sprint("n", i)}})
	}
	return commands
}

// togetherOnce loses the third reply.
func togetherOnce(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := pipelinerOf(t, h.Connect(t, Server{Addr: proxy.Addr()}).Executor)
	for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
		do(t, server, "FLUSHALL")
		proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"INCR"}, Nth: 3})
		commands := increments(5)
		all(t.Context(), commands)
		for i, c := range commands {
			n := do(t, server, "GET", c.Args[1].(string))
			known := backends.Unsent(c.Err) || errors.As(c.Err, new(*driver.ReplyError))
			answered := c.Err == nil
			if name == "DoAll" && h.Repeats && !answered {
				t.Errorf("%s: %d = %v, and is not sent again", name, i, c.Err)
			}
			if known || answered && n != fmt.Sprint(c.Reply) || name == "OnceAll" && (n == "2" || i >= 2 && answered) || i == 2 && n == nil {
				t.Errorf("%s: %d = %v, %v, and is %v", name, i, c.Reply, c.Err, n)
			}
		}
	}
}

func togetherUnsent(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	server.Kill()
	e := pipelinerOf(t, open(t, Server{Addr: server.Addr()}))
	commands := increments(3)
	e.OnceAll(t.Context(), commands)
	for _, c := range commands {
		if !backends.Unsent(c.Err) {
			t.Errorf("%v, %v", c.Reply, c.Err)
		}
	}
}

func togetherEnd(t *testing.T, h Harness) {
	server := redistest.Start(t)
	for _, end := range h.endings() {
		proxy := redistest.NewProxy(t, server.Addr())
		e := pipelinerOf(t, h.Connect(t, Server{Addr: proxy.Addr(), Ends: true}).Executor)
		for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
			lost := proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"INCR"}, Nth: 2, Times: -1})
			ctx, cancel := end.start(t.Context())
			defer cancel()
			commands := increments(3)
			all(ctx, commands)
			lost.Remove()
			for i, c := range commands[1:] {
				if !errors.Is(c.Err, end.want) {
					t.Errorf("%s, %s: %d = %v, %v", name, end.name, i, c.Reply, c.Err)
				}
			}
			unsent := []*driver.Command{{Args: []any{"SET", "unsent", "1"}}, {Args: []any{"SET", "unsent", "2"}}}
			all(ctx, unsent)
			for _, c := range unsent {
				if !errors.Is(c.Err, end.want) {
					t.Errorf("%s after the %s: %v, %v", name, end.name, c.Reply, c.Err)
				}
			}
		}
	}
	if n := do(t, server, "EXISTS", "unsent"); n != int64(0) {
		t.Error("it was sent with a ctx that had ended")
	}
}

func endedCtx(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, Server{Addr: proxy.Addr()})
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		err := e.Pinned(ctx, "a", func(c driver.Conn) error {
			cancel()
			_, err := c.Pipeline(ctx, []any{"GET", "a"})
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Pinned = %v", err)
		}
		err = e.Pinned(ctx, "a", func(c driver.Conn) error {
			_, err := c.Pipeline(ctx, []any{"GET", "a"})
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Pinned with a ctx that had ended = %v", err)
		}
		for name, call := range map[string]func(context.Context, ...any) (any, error){"Do": e.Do, "Once": e.Once} {
			if _, err := call(ctx, "GET", "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s = %v", name, err)
			}
		}
	}
	if n := proxy.Open(); n > 3 || proxy.Count("GET") != 0 {
		t.Errorf("%d connections, after %v", n, proxy.Seen())
	}
}

// pinnedEnds plays a scene again, with more time, if the deadline came before the server hung.
func pinnedEnds(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	for name, use := range map[string]func(ctx context.Context, hang func(), c driver.Conn) error{
		"in a pipeline": func(ctx context.Context, hang func(), c driver.Conn) error {
			hang()
			_, err := c.Pipeline(ctx, []any{"WATCH", "a"}, []any{"GET", "a"})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Pipeline = %v", err)
			}
			return err
		},
		"while it unwatches": func(ctx context.Context, hang func(), c driver.Conn) error {
			_, err := c.Pipeline(ctx, []any{"WATCH", "a"})
			hang()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			e := open(t, Server{Addr: server.Addr()})
			hung := false
			for within := 100 * time.Millisecond; !hung && within < patience; within *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				err := e.Pinned(ctx, "a", func(c driver.Conn) error {
					return use(ctx, func() {
						server.Pause()
						hung = ctx.Err() == nil
					}, c)
				})
				if end, _ := ctx.Deadline(); time.Now().Before(end) {
					t.Errorf("Pinned = %v, before the deadline", err)
				}
				cancel()
				server.Resume()
			}
			if !hung {
				t.Error("each time the deadline came before the server hung")
			}
			err := e.Pinned(t.Context(), "a", func(c driver.Conn) error { // on a connection where nothing is left
				got, err := c.Pipeline(t.Context(), []any{"ECHO", "text"})
				if err == nil && got[0] != "text" {
					t.Errorf("ECHO = %v", got)
				}
				return err
			})
			if err != nil {
				t.Errorf("Pinned = %v", err)
			}
		})
	}
}

// cancellations end the ctx when the reply is near, or has come.
func cancellations(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	e := open(t, Server{Addr: redistest.Start(t).Addr()})
	var calls sync.WaitGroup
	var answered, cancelled atomic.Int64
	for i := range 8 {
		calls.Go(func() {
			met := func() bool { return answered.Load() > 0 && cancelled.Load() > 0 }
			for n := 0; n < 300 || n < 30_000 && !met(); n++ {
				ctx, cancel := context.WithCancel(t.Context())
				want := fmt.Sprint(i, "/", n)
				go func() {
					for range n % 100 * 10 * (1 + n/300) {
						runtime.Gosched()
					}
					cancel()
				}()
				var got any
				var err error
				if n%2 == 0 {
					got, err = e.Do(ctx, "ECHO", want)
				} else {
					err = e.Pinned(ctx, "a", func(c driver.Conn) error {
						replies, err := c.Pipeline(ctx, []any{"WATCH", "a"}, []any{"ECHO", want})
						if err == nil {
							got = replies[1]
						}
						return err
					})
				}
				switch {
				case err == nil && got == want:
					answered.Add(1)
				case errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed): // what became of the connection is our doing
					cancelled.Add(1)
				case backends.Unsent(err): // so many connections were given up that no other is made
					cancelled.Add(1)
				default:
					t.Errorf("%v, %v instead of %s", got, err, want)
				}
				cancel()
			}
		})
	}
	calls.Wait()
	t.Logf("%d answered, %d cancelled", answered.Load(), cancelled.Load())
	if answered.Load() == 0 || cancelled.Load() == 0 {
		t.Error("nothing met")
	}
}
