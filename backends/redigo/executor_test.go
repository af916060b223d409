package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
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
