package natsstore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	byDefault = "" // the default: a sync every two minutes
	always    = "sync_interval: always"
)

// granted takes some keys and returns them with their numbers.
func granted(t *testing.T, store backends.NumberedStore, n int) (keys []string, last uint64) {
	t.Helper()
	for i := range n {
		key := "key" + strconv.Itoa(i)
		r, err := store.SetNXNumbered(t.Context(), key, "token", 20*time.Minute, backends.Turn{})
		if err != nil || !r.OK {
			t.Fatalf("SetNXNumbered = %+v, %v", r, err)
		}
		keys, last = append(keys, key), r.Fence
	}
	return keys, last
}

// heldOf counts the keys that are still held by the token. It asks a store that remembers no
// sequence.
func heldOf(t *testing.T, c *cluster, keys []string) (held int) {
	t.Helper()
	store := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL))
	for _, key := range keys {
		eventually(t, "the store answers", func() bool {
			ok, err := store.ExpireIf(t.Context(), key, "token", 20*time.Minute)
			if ok {
				held++
			}
			return err == nil
		})
	}
	return held
}

func TestTheKillOfAServerForgetsNothing(t *testing.T) {
	for _, settings := range []string{byDefault, always} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1, settings)
			store := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL))
			keys, last := granted(t, store, 50)
			c.members[0].kill()
			c.members[0].start(t)
			if held := heldOf(t, c, keys); held != len(keys) {
				t.Errorf("%d of %d keys are held after the kill", held, len(keys))
			}
			r, err := store.SetNXNumbered(t.Context(), "next", "token", time.Minute, backends.Turn{})
			if err != nil || r.Fence <= last {
				t.Errorf("SetNXNumbered = %+v, %v; want a number over %d", r, err, last)
			}
		})
	}
}

func TestAHolderIsToldOfItsLossByTheEndOfItsLease(t *testing.T) {
	c := start(t, 1, byDefault)
	locks := locker.New(fenced.New(natsstore.New(c.conn)), locker.WithTTL(2*time.Second))
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	c.members[0].pause(t)
	defer c.members[0].resume()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder is not told")
	}
	if !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		t.Errorf("the cause is %v; want ErrLost", context.Cause(l.Context()))
	}
}

// A link carries the routes from one server to another.
type link struct {
	from, to int
	listener net.Listener

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newLink(t testing.TB, from, to int, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{from: from, to: to, listener: listener, open: map[net.Conn]bool{}}
	t.Cleanup(func() { listener.Close(); l.set(true) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn, target)
		}
	}()
	return l
}

func (l *link) carry(conn net.Conn, target string) {
	defer conn.Close()
	other, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer other.Close()
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return
	}
	l.open[conn], l.open[other] = true, true
	l.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
	l.mu.Lock()
	delete(l.open, conn)
	delete(l.open, other)
	l.mu.Unlock()
}

// set cuts the link, or lets routes be made again.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for conn := range l.open {
			conn.Close()
		}
	}
}

// partition cuts a server off from the others, or ends that.
func (c *cluster) partition(m *member, on bool) {
	for _, l := range c.links {
		if c.members[l.from] == m || c.members[l.to] == m {
			l.set(on)
		}
	}
}

// A server does not even know that it has had the stream.
func TestARestartForgetsAStreamInMemory(t *testing.T) {
	t.Parallel()
	c := start(t, 1, always)
	js := newOutside(t, c.conn).js
	install := func() {
		t.Helper()
		config := good()
		config.Storage = jetstream.MemoryStorage
		eventually(t, "the stream is made", func() bool {
			_, err := js.CreateStream(t.Context(), config)
			return err == nil
		})
	}
	if err := js.DeleteStream(t.Context(), "LOCKSTEP"); err != nil {
		t.Fatal(err)
	}
	install()
	store := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL))
	if r, err := store.SetNX(t.Context(), "k", "token", 20*time.Minute); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	c.members[0].kill()
	c.members[0].start(t)
	install()
	if held := heldOf(t, c, []string{"k"}); held > 0 {
		t.Error("the lock is held; want it forgotten")
	}
}
