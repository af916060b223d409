package redigo

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// What an Executor promises and no Store shows.

type executor struct {
	driver.Pipeliner
	pool *client.Pool
}

func open(t *testing.T, addr string, opts ...client.DialOption) executor {
	pool := &client.Pool{MaxIdle: 1, DialContext: func(ctx context.Context) (client.Conn, error) {
		return client.DialContext(ctx, "tcp", addr, opts...)
	}}
	t.Cleanup(func() { pool.Close() })
	return executor{newExecutor(pool, ""), pool}
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

func TestAConnectionThatWasCutIsNotUsedAgain(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, server.Addr())
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := e.Pinned(ctx, "a", func(c driver.Conn) error {
		server.Pause()
		_, err := c.Pipeline(ctx, []any{"GET", "a"})
		if _, again := c.Pipeline(t.Context(), []any{"GET", "a"}); again == nil {
			t.Error("Pipeline on it = nil")
		}
		return err
	})
	if n := e.pool.ActiveCount(); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Pinned = %v, and %d connections are left", err, n)
	}
}

func TestAnErrorThatComesOfTheDeadlineSaysSo(t *testing.T) {
	e := newExecutor(&client.Pool{DialContext: func(ctx context.Context) (client.Conn, error) {
		if _, ends := ctx.Deadline(); ends {
			<-ctx.Done()
		}
		return nil, os.ErrDeadlineExceeded // such as of the socket on which a connection was authenticated
	}}, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := e.Once(ctx, "GET", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Once = %v", err)
	}
	_, err := e.Once(t.Context(), "GET", "a")
	if errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Once without a deadline = %v", err)
	}
}
