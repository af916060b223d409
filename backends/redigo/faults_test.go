package redigo_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// endings are the ways in which a ctx ends soon.
var endings = map[string]struct {
	ctx  func(context.Context) (context.Context, context.CancelFunc)
	want error
}{
	"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 50*time.Millisecond)
	}, context.DeadlineExceeded},
	"cancellation": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		return ctx, cancel
	}, context.Canceled},
}

// ends wants SetNX to return because its ctx ended. Without that it would hang until the test is given up.
func ends(t *testing.T, pool *client.Pool) {
	t.Helper()
	for name, end := range endings {
		ctx, cancel := end.ctx(t.Context())
		_, err := redigo.New(pool).SetNX(ctx, "a", "token", 20*time.Second)
		if !errors.Is(err, end.want) {
			t.Errorf("%s: SetNX = %v", name, err)
		}
		cancel()
	}
}

func TestACallOnAServerThatHangsEndsWithItsCtx(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("secret"))
	password := client.DialPassword("secret")

	used := dial(t, server.Addr(), password)
	for range 2 { // connections, one for each ending
		defer used.Get().Close()
	}
	tested := dial(t, server.Addr(), password)
	tested.TestOnBorrow = func(c client.Conn, _ time.Time) error {
		_, err := c.Do("PING")
		return err
	}
	setNX(t, redigo.New(tested), "b")
	aged := dial(t, server.Addr(), password)
	setNX(t, redigo.New(aged), "c")
	aged.DialContext, aged.IdleTimeout = func(context.Context) (client.Conn, error) { // as one behind Quarantine, of a Dial
		return client.Dial("tcp", server.Addr(), password)
	}, time.Nanosecond
	deaf := &client.Pool{Dial: func() (client.Conn, error) { return client.Dial("tcp", server.Addr(), password) }}
	defer deaf.Close()

	server.Pause()
	defer server.Resume()
	for name, pool := range map[string]*client.Pool{
		"waiting for a reply":              used,
		"connecting":                       dial(t, server.Addr(), password),
		"connecting by a Dial without ctx": deaf,
		"in a TLS handshake without a limit": dial(t, server.Addr(), client.DialUseTLS(true), client.DialTLSSkipVerify(true),
			client.DialTLSHandshakeTimeout(0)),
		"connecting in place of what was idle for too long": aged,
		"in a TestOnBorrow that has no ctx":                 tested,
	} {
		t.Run(name, func(t *testing.T) { ends(t, pool) })
	}
}

func TestAnExhaustedPoolWaitsNoLongerThanTheCtx(t *testing.T) {
	server := redistest.Start(t)
	pool := dial(t, server.Addr())
	pool.MaxActive, pool.Wait = 1, true
	taken := pool.Get()
	ends(t, pool)
	taken.Close()
	setNX(t, redigo.New(pool), "a") // the place was not lost
}

func TestAnExhaustedPoolThatDoesNotWaitIsAnError(t *testing.T) {
	server := redistest.Start(t)
	pool := dial(t, server.Addr())
	pool.MaxActive = 1
	taken := pool.Get()
	if _, err := redigo.New(pool).SetNX(t.Context(), "a", "token", 20*time.Second); !errors.Is(err, client.ErrPoolExhausted) {
		t.Errorf("SetNX = %v", err)
	}
	taken.Close()
	setNX(t, redigo.New(pool), "a")
}

func TestAnExhaustedPoolStillWakes(t *testing.T) {
	server := redistest.Start(t)
	pool := dial(t, server.Addr())
	pool.MaxActive, pool.Wait = 1, true
	store := redigo.New(pool)
	woken := make(chan struct{}, 1)
	setNX(t, store, "a")
	if err := store.Watch(t.Context(), "a", func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if ok, err := store.DeleteIf(t.Context(), "a", "token"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	await(t, "a wake", woken)
}

func TestACtxThatIsDoneCostsNoConnection(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store, pool := redigo.Open(proxy.Addr(), nil, redisstore.WithoutQuarantine())
	defer pool.Close()
	borrow := pool.TestOnBorrowContext
	pool.TestOnBorrowContext = func(ctx context.Context, c client.Conn, _ time.Time) error {
		return borrow(ctx, c, time.Now().Add(-time.Hour)) // as if it had been idle for long
	}
	setNX(t, store, "a")
	for name, end := range endings {
		ctx, cancel := end.ctx(t.Context())
		<-ctx.Done()
		if _, err := store.SetNX(ctx, "b", "token", 20*time.Second); !errors.Is(err, end.want) {
			t.Errorf("%s: SetNX = %v", name, err)
		}
		c, err := pool.GetContext(ctx)
		if err == nil {
			_ = c.Close()
		}
		cancel()
	}
	if n := pool.IdleCount(); n != 1 || proxy.Count("PING") != 0 || proxy.Count("SET") != 1 {
		t.Errorf("%d idle connections after %v", n, proxy.Seen())
	}
}

func TestAConnectionThatDiedWhileIdle(t *testing.T) {
	server := redistest.Start(t)
	for name, tested := range map[string]bool{"without a test": false, "with a test": true} {
		t.Run(name, func(t *testing.T) {
			pool := dial(t, server.Addr())
			if tested {
				borrow := redigo.TestOnBorrow()
				pool.TestOnBorrowContext = func(ctx context.Context, c client.Conn, _ time.Time) error {
					return borrow(ctx, c, time.Now().Add(-time.Hour)) // as if it had been idle for long
				}
			}
			store := redigo.New(pool)
			setNX(t, store, name)
			restart := func() {
				server.Kill()
				server.Restart()
			}
			restart()
			if ok, err := store.ExpireIf(t.Context(), name, "token", 20*time.Second); ok || err != nil {
				t.Errorf("ExpireIf = %v, %v: want an answer, since it is sent again", ok, err)
			}
			restart()
			_, err := store.SetNX(t.Context(), name, "token", 20*time.Second)
			if (err == nil) != tested {
				t.Errorf("SetNX = %v", err)
			}
			setNX(t, store, name)
		})
	}
}

func TestIdleConnectionsAreTestedAfterFiveSecondsAndNotOneByOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	pool := dial(t, proxy.Addr())
	borrow := redigo.TestOnBorrow()
	c, err := pool.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	now := time.Now()
	if err := borrow(t.Context(), c, now.Add(-4*time.Second)); err != nil || proxy.Count("PING") != 0 {
		t.Errorf("of a busy connection: %v after %v", err, proxy.Seen())
	}
	if err := borrow(t.Context(), c, now.Add(-time.Minute)); err != nil || proxy.Count("PING") != 1 {
		t.Errorf("of an idle connection: %v after %v", err, proxy.Seen())
	}
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"PING"}})
	if err := borrow(t.Context(), c, now.Add(-time.Minute)); err == nil || c.Err() == nil {
		t.Errorf("of one that does not answer: %v", err)
	}
	other, err := pool.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := borrow(t.Context(), other, now.Add(-5*time.Second)); err == nil || proxy.Count("PING") != 2 {
		t.Errorf("of one as old as that: %v after %v", err, proxy.Seen())
	}
	if err := borrow(t.Context(), other, time.Now()); err != nil {
		t.Errorf("of one that was used since: %v", err)
	}
}

func TestTheTestOfAnIdleConnectionNeedsNoPermission(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-ping"); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial("tcp", server.Addr(), client.DialUsername("locks"), client.DialPassword("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := redigo.TestOnBorrow()(t.Context(), c, time.Now().Add(-time.Minute)); err != nil || c.Err() != nil {
		t.Errorf("TestOnBorrow = %v", err)
	}
}

func TestConnectionsThatAreGivenUpAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 256
		var dials atomic.Int32
		hang := make(chan struct{})
		store := redigo.New(&client.Pool{Dial: func() (client.Conn, error) {
			dials.Add(1)
			<-hang
			return nil, errors.New("too late")
		}})
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := store.SetNX(ctx, "a", "token", 20*time.Second)
			return err
		}
		for range bound {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("SetNX = %v", err)
			}
		}
		for range bound {
			began := time.Now()
			if err := call(); err == nil || time.Since(began) > 0 || !backends.Unsent(err) {
				t.Errorf("SetNX = %v after %v; want it to fail at once", err, time.Since(began))
			}
		}
		if n := dials.Load(); n != bound {
			t.Errorf("%d dials; want %d", n, bound)
		}
		close(hang)
		synctest.Wait()
		if err := call(); !strings.Contains(err.Error(), "too late") || dials.Load() != bound+1 {
			t.Errorf("SetNX = %v after %d dials", err, dials.Load())
		}
	})
}

// A renewal is sent again. That the server could not be reached then says nothing of the first try.
func TestARenewalThatWasSentAndCouldNotBeSentAgainIsUnknown(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var cut atomic.Bool
	pool := &client.Pool{DialContext: func(ctx context.Context) (client.Conn, error) {
		if cut.Load() {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		return client.DialContext(ctx, "tcp", proxy.Addr())
	}, MaxIdle: 1}
	t.Cleanup(func() { _ = pool.Close() })
	store := redigo.New(pool)
	if r, err := store.SetNX(t.Context(), "key", "token", 5*time.Second); !r.OK || err != nil {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	if ok, err := store.ExpireIf(t.Context(), "key", "token", 6*time.Second); !ok || err != nil { // the server has the script
		t.Fatalf("ExpireIf = %v, %v", ok, err)
	}
	proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"EVALSHA"}, Times: 1})
	cut.Store(true)
	ok, err := store.ExpireIf(t.Context(), "key", "token", 20*time.Second)
	if ok || err == nil || backends.Unsent(err) || strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("ExpireIf = %v, %v; want an unknown outcome", ok, err)
	}
	if left, err := server.Do("PTTL", "key"); err != nil || left.(int64) < 10_000 {
		t.Errorf("PTTL = %v, %v; want what was sent first", left, err)
	}
}
