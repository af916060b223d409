package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// bounded is a pool whose connections answer everything with 1.
type bounded struct {
	most  int
	turns chan struct{} // one for each connection in use
	full  error         // of the server, which takes no more connections

	mu     sync.Mutex
	opened []*answering // beside the pool
}

type answering struct {
	of      *bounded
	closed  atomic.Bool
	beside  bool
	answers []any
	wait    time.Duration // before each answer
}

func newBounded(most int) *bounded { return &bounded{most: most, turns: make(chan struct{}, most)} }

func (b *bounded) Get(ctx context.Context) (PoolConn, error) {
	select {
	case b.turns <- struct{}{}:
		return &answering{of: b}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *bounded) Beside(context.Context) (PoolConn, error) {
	if b.full != nil {
		return nil, b.full
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &answering{of: b, beside: true}
	b.opened = append(b.opened, c)
	return c, nil
}

func (b *bounded) open() (n int) {
	for _, c := range b.opened {
		if !c.closed.Load() {
			n++
		}
	}
	return n
}

func (b *bounded) Dial(context.Context) (PoolConn, error) { return nil, errors.ErrUnsupported }
func (b *bounded) Cut(c PoolConn)                         { c.(*answering).closed.Store(true) }
func (b *bounded) IdleCount() int                         { return 0 }
func (b *bounded) Translate(err error) error              { return err }
func (b *bounded) Room() Room                             { return Room{InUse: len(b.turns), Most: b.most, Remedy: "most"} }

func (c *answering) Send(name string, _ ...any) error {
	c.answers = append(c.answers, int64(len(name)))
	return nil
}
func (c *answering) Flush() error { return nil }

func (c *answering) Receive() (any, error) {
	if time.Sleep(c.wait); c.closed.Load() {
		return nil, net.ErrClosed
	}
	answer := c.answers[0]
	c.answers = c.answers[1:]
	return answer, nil
}

func (c *answering) Close() error {
	if c.beside {
		c.closed.Store(true)
	} else {
		<-c.of.turns
	}
	return nil
}

var renewal, grant = []any{"PEXPIRE", "a", 1}, []any{"SET", "a", "token", "NX", "PX", 1}

func TestWhatKeepsAHoldGoesBesideAPoolThatIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(2)
		e := OverPool(b, "a:1")
		for used := range 3 {
			if _, err := e.Once(t.Context(), renewal...); err != nil || (len(b.opened) > 0) != (used == 2) {
				t.Errorf("%d connections are in use: %v, %d beside", used, err, len(b.opened))
			}
			if used < 2 {
				b.turns <- struct{}{}
			}
		}
		if _, err := e.Do(t.Context(), renewal...); err != nil || len(b.opened) != 1 {
			t.Errorf("%v, %d connections beside", err, len(b.opened))
		}
		if err := e.Pinned(t.Context(), "a", func(c Conn) error {
			_, err := c.Pipeline(t.Context(), renewal, []any{"WAIT", 1, 1})
			return err
		}); err != nil || len(b.opened) != 1 {
			t.Errorf("%v, %d connections beside", err, len(b.opened))
		}
		time.Sleep(2*besideIdle + time.Millisecond)
		synctest.Wait()
		if b.open() != 0 {
			t.Error("a connection that nobody uses stays open")
		}
	})
}

// The call took the pool's last connection for granted.
func TestWhatKeepsAHoldLeavesAPoolThatOthersHaveUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(2)
		b.turns <- struct{}{}
		late := &overtaken{bounded: b}
		began := time.Now()
		_, err := OverPool(late, "a:1").Once(t.Context(), renewal...)
		if took := time.Since(began); err != nil || took != fullFor || len(b.opened) != 1 {
			t.Errorf("%v after %v, %d connections beside", err, took, len(b.opened))
		}
		<-b.turns
		synctest.Wait()
		if len(b.turns) != 1 {
			t.Errorf("%d connections are in use, want 1: the call has left the pool", len(b.turns))
		}
	})
}

// overtaken is a pool whose last connection another call takes first.
type overtaken struct{ *bounded }

func (o *overtaken) Get(ctx context.Context) (PoolConn, error) {
	if len(o.turns) < o.most {
		o.turns <- struct{}{}
	}
	return o.bounded.Get(ctx)
}

func TestAGrantWaitsForThePoolAndSaysThatNothingWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(1)
		b.turns <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		e, began := OverPool(b, "a:1"), time.Now()
		_, once := e.Once(ctx, grant...)
		took := time.Since(began)
		pinned := e.Pinned(ctx, "a", func(c Conn) error {
			_, err := c.Pipeline(ctx, grant)
			return err
		})
		for _, err := range []error{once, pinned} {
			var typed interface{ ErrorType() string }
			if !backends.Unsent(err) || !errors.As(err, &typed) || typed.ErrorType() != "pool_exhausted" || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, ctx: %v", err, ctx.Err())
			}
			if want := "server a:1: the only connection of the pool is in use (context deadline exceeded): " +
				"give the locks a client of their own, or make the pool larger (most); nothing was sent"; err.Error() != want {
				t.Errorf("%q\nwant %q", err, want)
			}
		}
		if want := 3*time.Second - answerTime; took != want {
			t.Errorf("after %v, want %v", took, want)
		}
		if len(b.opened) != 0 {
			t.Error("a grant goes beside the pool")
		}
		<-b.turns
		if _, err := e.Once(ctx, grant...); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectionsBesideThePoolAreBoundedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(1)
		b.turns <- struct{}{}
		e := OverPool(b, "a:1")
		var errs []error
		done := make(chan error)
		calls := func(n int) {
			for range n {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					_, err := e.Once(ctx, renewal...)
					done <- err
				}()
			}
			for range n {
				errs = append(errs, <-done)
			}
		}
		calls(1)
		b.opened[0].wait = time.Hour // it has fallen silent
		calls(1)
		if !b.opened[0].closed.Load() || errs[0] != nil || errs[1] == nil || backends.Unsent(errs[1]) {
			t.Errorf("the connection is closed: %v; %v", b.opened[0].closed.Load(), errs)
		}
		calls(3 * besideMost)
		if n := len(b.opened) - 1; n > besideMost || slices.ContainsFunc(errs[2:], func(err error) bool { return err != nil }) {
			t.Errorf("%d connections, %v", n, errs[2:])
		}
		for range 2 * int(besideAge/time.Second) { // never idle for long
			calls(1)
			time.Sleep(time.Second / 2)
		}
		last := len(b.opened)
		for range 2 * int(besideAge/time.Second) {
			calls(1)
			time.Sleep(time.Second / 2)
		}
		if len(b.opened) == last {
			t.Errorf("a connection is used for more than %v", besideAge)
		}
		b.full = Connecting(errors.New("too many connections"))
		time.Sleep(2*besideIdle + time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Once(ctx, renewal...); err == nil || !backends.Unsent(err) || !strings.Contains(err.Error(), "too many connections") || ctx.Err() != nil {
			t.Errorf("Once = %v, ctx: %v", err, ctx.Err())
		}
		time.AfterFunc(time.Second, func() { <-b.turns })
		if _, err := e.Once(t.Context(), renewal...); err != nil {
			t.Errorf("Once on the pool, after all: %v", err)
		}
	})
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		inUse, most int
		want        string
	}{
		{0, 0, "ample"}, {9, 0, "ample"}, {0, 1, "ample"}, {1, 1, "none"}, {2, 1, "none"},
		{1, 4, "ample"}, {2, 4, ""}, {3, 4, ""}, {4, 4, "none"}, {-1, 4, "ample"},
	} {
		got := ""
		switch r := (Room{InUse: c.inUse, Most: c.most}); {
		case r.Ample() && !r.None():
			got = "ample"
		case r.None() && !r.Ample():
			got = "none"
		}
		if got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.inUse, c.most, got, c.want)
		}
	}
}

func TestAnEarlyCtxHasTheDeadlineOfItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ limit, early time.Duration }{{10 * time.Second, answerTime}, {200 * time.Millisecond, 50 * time.Millisecond}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			began := time.Now()
			early, done := Early(ctx)
			want, _ := ctx.Deadline()
			if end, ok := early.Deadline(); !ok || !end.Equal(want) {
				t.Errorf("deadline %v, want %v", end, want)
			}
			<-early.Done()
			if took := time.Since(began); took != c.limit-c.early || !errors.Is(early.Err(), context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("%v: %v after %v", c.limit, early.Err(), took)
			}
			done()
			cancel()
		}
		if early, _ := Early(t.Context()); fmt.Sprint(early) != fmt.Sprint(t.Context()) {
			t.Error("a ctx without a deadline is another one")
		}
	})
}
