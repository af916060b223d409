package rueidis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
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

func TestACallOnAServerThatHangsEndsWithItsCtx(t *testing.T) {
	server := redistest.Start(t)
	used := rueidis.New(dial(t, server.Addr()))
	setNX(t, used, "b")
	stores := map[string]*redisstore.Store{"on a new connection": rueidis.New(dial(t, server.Addr())), "on a used one": used}
	server.Pause()
	defer server.Resume()
	for connection, store := range stores {
		for name, end := range endings {
			ctx, cancel := end.ctx(t.Context())
			if _, err := store.SetNX(ctx, "a", "token", 20*time.Second); !errors.Is(err, end.want) {
				t.Errorf("%s, %s: SetNX = %v", connection, name, err)
			}
			cancel()
		}
	}
}

func TestALateReplyIsNotTakenForTheNextOne(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := rueidis.New(dial(t, proxy.Addr()))
	setNX(t, store, "held")
	for name, end := range endings {
		proxy.Add(redistest.Rule{Fault: redistest.DelayReply, Delay: 100 * time.Millisecond, Commands: []string{"SET"}})
		ctx, cancel := end.ctx(t.Context())
		if r, err := store.SetNX(ctx, name, "token", 20*time.Second); r.OK || !errors.Is(err, end.want) {
			t.Errorf("%s: SetNX = %v, %v", name, r, err)
		}
		cancel()
		if r, err := store.SetNX(t.Context(), "held", "other", 20*time.Second); r.OK || err != nil {
			t.Errorf("%s: the next SetNX = %v, %v", name, r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), name, "token"); !ok || err != nil { // it was stored, and known to nobody
			t.Errorf("%s: DeleteIf = %v, %v", name, ok, err)
		}
	}
}

func TestNothingIsSentTwice(t *testing.T) {
	server := redistest.Start(t)
	for _, fault := range []redistest.Fault{redistest.CutRequest, redistest.CutReply} {
		proxy := redistest.NewProxy(t, server.Addr())
		store := rueidis.New(dial(t, proxy.Addr()))
		key := fault.String()
		warm := func() { // the scripts are known to the server, and there is a connection
			t.Helper()
			setNX(t, store, key)
			if ok, err := store.ExpireIf(t.Context(), key, "token", 20*time.Second); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if ok, err := store.DeleteIf(t.Context(), key, "token"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			setNX(t, store, key)
		}
		warm()
		for name, c := range map[string]struct {
			command string
			call    func() error
		}{
			"SetNX":    {"SET", func() error { _, err := store.SetNX(t.Context(), key, "token", 20*time.Second); return err }},
			"ExpireIf": {"EVALSHA", func() error { _, err := store.ExpireIf(t.Context(), key, "token", 20*time.Second); return err }},
			"DeleteIf": {"EVALSHA", func() error { _, err := store.DeleteIf(t.Context(), key, "token"); return err }},
			"Get":      {"GET", func() error { _, _, err := store.Get(t.Context(), key); return err }},
		} {
			before := proxy.Count(c.command)
			proxy.Add(redistest.Rule{Fault: fault, Commands: []string{c.command}})
			if err := c.call(); err == nil || proxy.Count(c.command) != before+1 {
				t.Errorf("%v: %s = %v, sent %d times", fault, name, err, proxy.Count(c.command)-before)
			}
			if err := c.call(); err != nil { // on a new connection
				t.Errorf("%v: the next %s = %v", fault, name, err)
			}
			setNX(t, store, key) // after DeleteIf
		}
	}
}

// TestALifetimeOfConnectionsSendsTwice is why Open takes none.
func TestALifetimeOfConnectionsSendsTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := options(proxy.Addr())
	o.ConnLifetime = 500 * time.Millisecond
	o.ForceSingleClient = true // there are fewer connections before ours
	store := rueidis.New(connect(t, o))
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"SET"}})
	if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK {
		t.Errorf("SetNX = %v, %v", r, err)
	}
	if n := proxy.Count("SET"); n != 2 {
		t.Errorf("SET was sent %d times: what the package says of ConnLifetime is out of date", n)
	}
}

// TestALostReplyKeepsNoLockFromOthers waits until the connection is given up, some seconds.
func TestALostReplyKeepsNoLockFromOthers(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"SET", "EVALSHA"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			store, _ := open(t, options(proxy.Addr()), redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour))
			locks := locker.New(single.New(store), locker.WithTTL(10*time.Minute), locker.WithoutExtension())
			warm, err := locks.Lock(t.Context(), "a") // so that EVALSHA is the release, and no NOSCRIPT
			if err != nil {
				t.Fatal(err)
			}
			if err := warm.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{command}})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			l, err := locks.Lock(ctx, "a")
			if (err == nil) == (command == "SET") || errors.Is(err, locker.ErrHeld) {
				t.Fatalf("Lock = %v", err)
			}
			if err == nil {
				if err := l.Unlock(t.Context()); err != nil { // it is sent again
					t.Errorf("Unlock = %v", err)
				}
			}
			eventually(t, "the lock is free", func() bool {
				n, err := server.Do("EXISTS", "a")
				return n == int64(0) && err == nil
			})
			eventually(t, "a lock for the next one", func() bool { // when the connection was given up
				other, err := locks.Lock(t.Context(), "a")
				if err == nil {
					err = other.Unlock(t.Context())
				}
				if errors.Is(err, locker.ErrHeld) {
					t.Errorf("Lock = %v", err)
				}
				return err == nil
			})
		})
	}
}

func TestAConnectionThatBreaksIsReplaced(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := rueidis.New(dial(t, proxy.Addr()))
	for range 20 {
		setNX(t, store, "a")
		proxy.CutAll()
		eventually(t, "a call that is answered", func() bool { // one may meet the old connection
			ok, err := store.ExpireIf(t.Context(), "a", "token", 20*time.Second)
			return ok && err == nil
		})
	}
}
