package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

// What an Executor promises and no Store shows.

func open(t testing.TB, o client.ClientOption) executor {
	t.Helper()
	o.DisableCache = true
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return newExecutor(c)
}

func at(addrs ...string) client.ClientOption { return client.ClientOption{InitAddress: addrs} }

func TestRepliesThatOnlyRESP3HasAreAsRESP2WouldHaveThem(t *testing.T) {
	e := open(t, at(redistest.Start(t).Addr()))
	for script, want := range map[string]any{
		"return {map={a='b'}}":     []any{"a", "b"},
		"return {set={a=true}}":    []any{"a"},
		"return true":              int64(1),
		"return {double=1.5}":      "1.5",
		"return {big_number='12'}": "12",
		"return {verbatim_string={string='text', format='txt'}}": "text",
	} {
		if got, err := e.Do(t.Context(), "EVAL", "redis.setresp(3); "+script, 0); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %#v, %v; want %#v", script, got, err, want)
		}
	}
}

func TestArgumentsOfAllTypesArriveAsTheyAreWritten(t *testing.T) {
	e := open(t, at(redistest.Start(t).Addr()))
	got, err := e.Do(t.Context(), "EVAL", "return ARGV", 0, "a b\x00", -1, int64(1)<<60, uint32(3), uint64(1)<<63)
	if want := []any{"a b\x00", "-1", "1152921504606846976", "3", "9223372036854775808"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ARGV = %q, %v", got, err)
	}
}

func TestAConnectionThatCannotBeUnwatchedIsThrownAway(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">any", "~*", "+@all", "-unwatch"); err != nil {
		t.Fatal(err)
	}
	o := at(server.Addr())
	o.Username, o.Password = "locks", "any"
	e := open(t, o)
	for range 3 {
		err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
			got, err := c.Pipeline(t.Context(), []any{"MULTI"}, []any{"INCR", "b"}, []any{"EXEC"}, []any{"WATCH", "a"})
			if err == nil && got[2] == nil {
				t.Error("the key is still watched")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("INCR", "a"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPinnedEndsWithTheDeadlineOfItsCtxOnAServerThatHangs(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, server *redistest.Server, c driver.Conn) error{
		"in a pipeline": func(ctx context.Context, server *redistest.Server, c driver.Conn) error {
			server.Pause()
			_, err := c.Pipeline(ctx, []any{"WATCH", "a"}, []any{"GET", "a"})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Pipeline = %v", err)
			}
			return err
		},
		"while it unwatches": func(ctx context.Context, server *redistest.Server, c driver.Conn) error {
			_, err := c.Pipeline(ctx, []any{"WATCH", "a"})
			server.Pause()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			e := open(t, at(server.Addr()))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := e.Pinned(ctx, "a", func(c driver.Conn) error { return use(ctx, server, c) })
			if end, _ := ctx.Deadline(); time.Now().Before(end) {
				t.Errorf("Pinned = %v, before the deadline", err)
			}
			server.Resume()
			err = e.Pinned(t.Context(), "a", func(c driver.Conn) error { // on a connection where nothing is left
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

func TestACtxThatIsDoneSendsNothing(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, at(proxy.Addr()))
	dials := proxy.Count("HELLO")
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
		if err := e.Pinned(ctx, "a", func(driver.Conn) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Pinned = %v", err)
		}
		if _, err := e.Once(ctx, "GET", "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Once = %v", err)
		}
	}
	if n := proxy.Count("HELLO"); proxy.Count("GET") != 0 || n != dials+1 {
		t.Errorf("%d connections, after %v", n, proxy.Seen())
	}
}

// TestAnAbandonedCommandComesBeforeItsCleanUp: what a call has queued whose ctx ends is sent nevertheless, and what follows is
// behind it, also if there are more connections.
func TestAnAbandonedCommandComesBeforeItsCleanUp(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, exponent := range []int{-1, 3} { // one connection, and eight
		o := at(proxy.Addr())
		o.PipelineMultiplex = exponent
		e := open(t, o)
		for range 200 { // until there are all of them
			if err := e.client.Do(t.Context(), e.client.B().Get().Key("b").Build()).Error(); !client.IsRedisNil(err) {
				t.Fatal(err)
			}
		}
		for range 20 {
			late := proxy.Add(redistest.Rule{Fault: redistest.DelayRequest, Delay: 10 * time.Millisecond, Commands: []string{"SET"}})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-late.Fired()
				cancel()
			}()
			if _, err := e.Once(ctx, "SET", "a", "token"); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("Once = %v", err)
			}
			if n, err := e.Once(t.Context(), "DEL", "a"); n != int64(1) || err != nil {
				t.Fatalf("with PipelineMultiplex %d: DEL = %v, %v", exponent, n, err)
			}
		}
	}
}

func TestADeadlineDoesNotBreakTheConnectionForOthers(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, at(server.Addr())) // nothing was sent on it yet
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	come := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() { close(come) }) // when the first call waits, on most machines
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			<-come
			if got, err := e.Once(t.Context(), "ECHO", "text"); got != "text" || err != nil {
				t.Errorf("Once of another = %v, %v", got, err)
			}
		})
	}
	if _, err := e.Once(ctx, "GET", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Once = %v", err)
	}
	server.Resume()
	others.Wait()
}

func TestACancellationThatMeetsTheReplyHarmsNothing(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, at(server.Addr()))
	var calls sync.WaitGroup
	var answered, cancelled atomic.Int64
	for i := range 8 {
		calls.Go(func() {
			for n := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				want := fmt.Sprint(i, "/", n)
				go func() {
					for range n % 100 * 10 {
						runtime.Gosched() // until the reply is near, or has come
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
				case errors.Is(err, context.Canceled):
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

func TestErrorsOfOthersAreNotTakenForTheEndOfACtx(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	if err := (executor{state: new(state), cluster: true}).translate(over, timeout); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := (executor{state: new(state), cluster: true}).translate(gone, timeout); !errors.Is(err, context.Canceled) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the cancellation: %v", err)
	}
	for _, foreign := range []error{context.DeadlineExceeded, context.Canceled, &net.OpError{Op: "dial", Err: context.Canceled}} {
		err := (executor{state: new(state), cluster: true}).translate(t.Context(), foreign)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("of another's ctx: %v", err)
		}
		wait := net.Error(nil)
		if errors.Is(foreign, context.DeadlineExceeded) != (errors.As(err, &wait) && wait.Timeout()) {
			t.Errorf("%v is %v", foreign, err)
		}
	}
}

func TestTheNodeOfAClusterIsThatOfTheFirstKey(t *testing.T) {
	for _, c := range []struct {
		args []any
		key  any
	}{
		{[]any{"SET", "key", "token", "NX"}, "key"},
		{[]any{"EVALSHA", "digest", "2", "key", "other", "token"}, "key"},
		{[]any{"EVAL", "source", 1, "key"}, "key"},
		{[]any{"EVAL", "source", 0, "token"}, nil},
		{[]any{"INFO", "server"}, nil},
		{[]any{"CONFIG", "GET", "appendonly"}, nil},
		{[]any{"TIME"}, nil},
		{[]any{"MULTI"}, nil},
	} {
		if key, ok := firstKey(c.args); ok != (c.key != nil) || ok && key != c.key {
			t.Errorf("%v: %q, %t", c.args, key, ok)
		}
	}
}
