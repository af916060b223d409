package quarantinetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// While an application uses a pool up, renewals have connections beside it. A renewal counts only on the
// server that has granted, so the quarantine sees these connections as well.

const connections = 4 // of a pool that is used up

// besideNotices is about a connection beside the pool that is the first to lead to another server.
func besideNotices(t *testing.T, a Adapter) {
	first, second := redistest.Start(t), redistest.Start(t)
	name := forward(t, first.Addr())
	store, application := a.Pooled(t, name.addr(), connections, redisstore.WithMaxTTL(long))
	l := holdBeside(t, store, application, 6*time.Second, first, second)
	sets := calls(t, first, "set")
	name.to(second.Addr())
	killIdle(t, first)
	awaitRefusal(t, store)
	awaitLoss(t, l)
	if n := calls(t, first, "set") - sets + calls(t, second, "set"); n > 1 { // one waited for the pool, and its answer did not count
		t.Errorf("%d grants were sent", n)
	}
}

// besideEnds is about connections beside the pool that lead to the server before, when another connection has
// shown that there is another one.
func besideEnds(t *testing.T, a Adapter) {
	first, second := redistest.Start(t), redistest.Start(t)
	name := forward(t, first.Addr())
	store, application := a.Pooled(t, name.addr(), connections, redisstore.WithMaxTTL(long))
	l := holdBeside(t, store, application, 2*time.Second, first, second)
	name.to(second.Addr())
	_ = store.Watch(t.Context(), "key", func() {}) // opens a connection
	awaitRefusal(t, store)
	renewed := calls(t, first, "evalsha")
	awaitLoss(t, l)
	if n := calls(t, first, "evalsha") - renewed; n > 1 { // one was on its way
		t.Errorf("%d renewals by the server that the name has left", n)
	}
}

// besideGoesOn is about a server that has kept the lock.
func besideGoesOn(t *testing.T, a Adapter) {
	const ttl = 10 * time.Second
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	store, application := a.Pooled(t, server.Addr(), connections, redisstore.WithMaxTTL(long))
	l := holdBeside(t, store, application, ttl, server)
	server.Kill()
	server.Restart()
	awaitBlocked(t, server)
	awaitRefusal(t, store)
	select {
	case <-l.Context().Done():
		t.Errorf("the lock is lost: %v", context.Cause(l.Context()))
	case <-time.After(ttl):
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}

// holdBeside returns a lock whose renewals go beside a pool that is used up.
func holdBeside(t *testing.T, store *redisstore.Store, application driver.Executor, ttl time.Duration, servers ...*redistest.Server) *locker.Lock {
	t.Helper()
	locks := locker.New(single.New(store), locker.WithTTL(ttl))
	var l *locker.Lock
	await(t, "a lock", func() (has bool) { // on a machine that stands still, an attempt is given up
		var err error
		l, err = locks.Lock(t.Context(), "key")
		return err == nil
	})
	useUp(t, application, servers...)
	awaitBlocked(t, servers[0])
	before := calls(t, servers[0], "evalsha")
	await(t, "a renewal beside the pool", func() bool { return calls(t, servers[0], "evalsha") > before })
	return l
}

// useUp makes an application use all connections of a pool, at the servers that may answer, until the test ends.
func useUp(t *testing.T, application driver.Executor, servers ...*redistest.Server) {
	queue := func(i int) string { return fmt.Sprint("queue", i) }
	over, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			for over.Err() == nil {
				err := application.Pinned(over, queue(i), func(c driver.Conn) error {
					_, err := c.Pipeline(over, []any{"BLPOP", queue(i), time.Minute.Seconds()})
					return err
				})
				if err != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(func() {
		end()
		for _, server := range servers {
			for i := range connections {
				must(t, server, "LPUSH", queue(i), "end")
			}
		}
		all.Wait()
	})
}

func awaitBlocked(t *testing.T, server *redistest.Server) {
	t.Helper()
	await(t, "all connections of the pool are in use", func() bool {
		return number(must(t, server, "INFO", "clients"), "blocked_clients:") == connections
	})
}

// killIdle ends the connections of the server that wait for nothing.
func killIdle(t *testing.T, server *redistest.Server) {
	t.Helper()
	list := fmt.Sprint(must(t, server, "CLIENT", "LIST"))
	for _, client := range regexp.MustCompile(`(?m)^id=(\d+) .* flags=N .* cmd=(\S+)`).FindAllStringSubmatch(list, -1) {
		if client[2] != "client|list" {
			_, _ = server.Do("CLIENT", "KILL", "ID", client[1]) // it may have ended by itself
		}
	}
}

// awaitRefusal is awaitQuarantine for a pool that is used up: a call waits for it until its ctx ends.
func awaitRefusal(t *testing.T, store *redisstore.Store) {
	t.Helper()
	await(t, "quarantine", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := store.SetNX(ctx, "another key", "token", time.Second)
		if r.OK {
			t.Fatal("granted")
		}
		return errors.As(err, new(*redisstore.QuarantineError))
	})
}

// awaitLoss waits for less time than a connection beside the pool may be used.
func awaitLoss(t *testing.T, l *locker.Lock) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(30 * time.Second):
		t.Error("the lock is not lost: a renewal counts on a server that has not granted it")
	}
}
