package redigo

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

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// What an Executor promises and no Store shows.

func open(t *testing.T, addr string, opts ...client.DialOption) executor {
	pool := &client.Pool{MaxIdle: 1, DialContext: func(ctx context.Context) (client.Conn, error) {
		return client.DialContext(ctx, "tcp", addr, opts...)
	}}
	t.Cleanup(func() { pool.Close() })
	return newExecutor(pool, "")
}

func TestRepliesAreInTheTermsOfTheFamily(t *testing.T) {
	e := open(t, redistest.Start(t).Addr())
	script := `return {1, 'a', false, {'b', {}, redis.error_reply('OOPS inside')}, redis.status_reply('fine')}`
	want := []any{int64(1), "a", nil, []any{"b", []any{}, &redisstore.ReplyError{Text: "OOPS inside"}}, "fine"}
	for name, call := range map[string]func(context.Context, ...any) (any, error){"Do": e.Do, "Once": e.Once} {
		if got, err := call(t.Context(), "EVAL", script, 0); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %#v, %v", name, got, err)
		}
		if got, err := call(t.Context(), "GET", "nothing"); got != nil || err != nil {
			t.Errorf("%s of nothing = %v, %v", name, got, err)
		}
		_, err := call(t.Context(), "EVAL", "return redis.error_reply('OOPS outside')", 0)
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Text != "OOPS outside" {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestPipelineRepliesInOrderWithErrorsInTheirPlace(t *testing.T) {
	e := open(t, redistest.Start(t).Addr())
	err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		got, err := c.Pipeline(t.Context(), []any{"SET", "a", "1"}, []any{"LPUSH", "a", "x"}, []any{"GET", "a"},
			[]any{"MULTI"}, []any{"INCR", "a"}, []any{"LPUSH", "a", "x"}, []any{"EXEC"})
		wrong := &redisstore.ReplyError{Text: "WRONGTYPE Operation against a key holding the wrong kind of value"}
		want := []any{"OK", wrong, "1", "OK", "QUEUED", "QUEUED", []any{int64(2), wrong}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Pipeline = %#v, %v", got, err)
		}
		got, err = c.Pipeline(t.Context()) // on the same connection, which is still good
		if len(got) != 0 || err != nil {
			t.Errorf("Pipeline of nothing = %v, %v", got, err)
		}
		got, err = c.Pipeline(t.Context(), []any{"GET", "a"})
		if err != nil || !reflect.DeepEqual(got, []any{"2"}) {
			t.Errorf("Pipeline = %v, %v", got, err)
		}
		return nil
	})
	if err != nil || e.pool.IdleCount() != 1 {
		t.Errorf("Pinned = %v, %d idle", err, e.pool.IdleCount())
	}
}

func TestPinnedWatchesOnOneConnectionAndUnwatchesAfterwards(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, proxy.Addr())
	exec := func(c driver.Conn) any {
		t.Helper()
		got, err := c.Pipeline(t.Context(), []any{"MULTI"}, []any{"SET", "b", "1"}, []any{"EXEC"})
		if err != nil {
			t.Fatal(err)
		}
		return got[2]
	}
	change := func() {
		t.Helper()
		if _, err := server.Do("INCR", "a"); err != nil {
			t.Fatal(err)
		}
	}
	own := errors.New("own")
	err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		for _, changed := range []bool{false, true} {
			if _, err := c.Pipeline(t.Context(), []any{"WATCH", "a"}, []any{"GET", "a"}); err != nil {
				t.Fatal(err)
			}
			if changed {
				change()
			}
			if got := exec(c); (got == nil) != changed {
				t.Errorf("EXEC = %v when changed: %t", got, changed)
			}
		}
		_, err := c.Pipeline(t.Context(), []any{"WATCH", "a"})
		return errors.Join(err, own)
	})
	if !errors.Is(err, own) {
		t.Fatalf("Pinned = %v", err)
	}
	if e.pool.IdleCount() != 1 || proxy.Count("UNWATCH") != 1 {
		t.Errorf("%d connections went back to the pool after %v", e.pool.IdleCount(), proxy.Seen())
	}
	change()
	err = e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		if got := exec(c); got == nil {
			t.Error("the key is still watched")
		}
		if _, err := c.Pipeline(t.Context(), []any{"WATCH", "a"}, []any{"MULTI"}, []any{"EXEC"}); err != nil {
			t.Error(err)
		}
		return own
	})
	if err != own || proxy.Count("UNWATCH") != 1 { // as it is
		t.Errorf("Pinned = %v after %v: nothing was left watched", err, proxy.Seen())
	}
}

func TestACtxThatIsDoneSendsNothingAndLeavesTheConnection(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, proxy.Addr())
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
		if _, err := e.Once(ctx, "GET", "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Once = %v", err)
		}
		if e.pool.IdleCount() != 1 || proxy.Count("GET") != 0 {
			t.Fatalf("%d idle after %v", e.pool.IdleCount(), proxy.Seen())
		}
	}
}

func TestAConnectionThatComesTooLateIsKeptForOthers(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, server.Addr())
	dial, late := e.pool.DialContext, make(chan struct{})
	e.pool.Dial, e.pool.DialContext = func() (client.Conn, error) {
		<-late
		return dial(context.Background())
	}, nil
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := e.Once(ctx, "SET", "a", "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("Once = %v", err)
	}
	close(late)
	for deadline := time.Now().Add(20 * time.Second); e.pool.IdleCount() == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection was not put back")
		}
	}
	if got, err := e.Do(t.Context(), "GET", "a"); got != nil || err != nil { // or it was sent after Once had returned
		t.Errorf("GET = %v, %v", got, err)
	}
}

func TestDoSendsAgainOnlyWhatMetABrokenConnection(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, proxy.Addr())
	if _, err := e.Do(t.Context(), "INCR"); err == nil || proxy.Count("INCR") != 1 {
		t.Errorf("Do that was refused = %v after %v", err, proxy.Seen())
	}
	proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"INCR"}})
	if n, err := e.Do(context.Background(), "INCR", "a"); n != int64(2) || err != nil || proxy.Count("INCR") != 3 {
		t.Errorf("Do whose connection broke = %v, %v after %v", n, err, proxy.Seen())
	}
	hasty := open(t, proxy.Addr(), client.DialReadTimeout(50*time.Millisecond))
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"GET"}})
	if _, err := hasty.Do(t.Context(), "GET", "a"); err == nil || proxy.Count("GET") != 1 {
		t.Errorf("Do that timed out = %v after %v", err, proxy.Seen())
	}
}

func TestPinnedEndsWithItsCtxOnAServerThatHangs(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, server *redistest.Server, c driver.Conn) error{
		"in a pipeline": func(ctx context.Context, server *redistest.Server, c driver.Conn) error {
			server.Pause()
			_, err := c.Pipeline(ctx, []any{"WATCH", "a"}, []any{"GET", "a"})
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("Pipeline = %v, and the ctx says %v", err, ctx.Err())
			}
			_, again := c.Pipeline(t.Context(), []any{"GET", "a"})
			if again == nil {
				t.Error("Pipeline on the connection that was cut = nil")
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
			e := open(t, server.Addr())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			defer server.Resume()
			err := e.Pinned(ctx, "a", func(c driver.Conn) error { return use(ctx, server, c) })
			if ctx.Err() == nil {
				t.Errorf("Pinned = %v, before the ctx had ended", err)
			}
			if n := e.pool.ActiveCount(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

func TestACancellationThatMeetsTheReplyHarmsNothing(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, server.Addr())
	e.pool.MaxIdle = 10
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
				case errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed): // what became of the connection is our doing
					cancelled.Add(1)
				case cleanup.Unsent(err): // so many connections were given up that no other is made
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
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) { // some come too late and are put back
		active, idle := e.pool.ActiveCount(), e.pool.IdleCount()
		if active == idle {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections, of which %d are idle", active, idle)
		}
	}
}

func TestAnErrorThatComesOfTheDeadlineSaysSo(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	// such as of the socket on which a connection was authenticated
	err := newExecutor(nil, "").translate(ctx, os.ErrDeadlineExceeded)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("translate = %v", err)
	}
	if err := newExecutor(nil, "").translate(t.Context(), os.ErrDeadlineExceeded); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("translate without a deadline = %v", err)
	}
}
