package natsstore_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/nats-io/nats.go"
)

// A stuffed dialer makes connections. The first one takes no more bytes when it is told so, as if the peer
// stood still: a write waits for the deadline that the client library sets, which is a minute, or for the
// end of the connection.
type stuffed struct {
	full chan struct{} // closed: it takes no more
	stop sync.Once

	mu   sync.Mutex
	made int
}

func (d *stuffed) Dial(network, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := net.Dial(network, addr)
	if d.made++; err != nil || d.made > 1 {
		return c, err
	}
	return &stuck{Conn: c, full: d.full, inside: make(chan struct{}), closed: make(chan struct{})}, nil
}

func (d *stuffed) fill() { d.stop.Do(func() { close(d.full) }) }

type stuck struct {
	net.Conn

	full, inside, closed chan struct{}
	waits, once          sync.Once
}

func (c *stuck) Write(b []byte) (int, error) {
	select {
	case <-c.full:
		c.waits.Do(func() { close(c.inside) })
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Write(b)
	}
}

func (c *stuck) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// end has the write that is stuck fail.
func (c *stuck) end() { _ = c.Close() }

// standing is a store that has granted warm over a connection that takes no more bytes since. A write is
// stuck: whatever asks the client library waits for its end.
func standing(t testing.TB) *natsstore.Store {
	t.Helper()
	s, d := run(t), &stuffed{full: make(chan struct{})}
	var first *stuck
	dialer := dialing(func(network, addr string) (net.Conn, error) {
		c, err := d.Dial(network, addr)
		if f, ok := c.(*stuck); ok {
			first = f
		}
		return c, err
	})
	conn := dial(t, s.ClientURL(), nats.SetCustomDialer(dialer), nats.Name("app"))
	t.Cleanup(func() { first.end() }) // before the connection is closed
	store := natsstore.New(conn)
	if err := store.Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	grant(t, store, "warm", "token", 20*time.Second)
	answered(t, s, store)
	d.fill()
	if err := conn.Publish("other", nil); err != nil {
		t.Fatal(err)
	}
	<-first.inside
	return store
}

type dialing func(network, addr string) (net.Conn, error)

func (d dialing) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

// While a write is stuck, the client library answers nothing, and it has no limit but that of the write.
func TestNoCallWaitsForAConnectionThatTakesNoMoreBytes(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s *natsstore.Store) error{
		"SetNX": func(ctx context.Context, s *natsstore.Store) error {
			_, err := s.SetNX(ctx, "key", "token", 20*time.Second)
			return err
		},
		"ExpireIf": func(ctx context.Context, s *natsstore.Store) error {
			_, err := s.ExpireIf(ctx, "warm", "token", 20*time.Second)
			return err
		},
		"DeleteIf": func(ctx context.Context, s *natsstore.Store) error {
			_, err := s.DeleteIf(ctx, "warm", "token")
			return err
		},
		"Watch":    func(ctx context.Context, s *natsstore.Store) error { return s.Watch(ctx, "key", func() {}) },
		"Endpoint": func(_ context.Context, s *natsstore.Store) error { s.Endpoint(); return nil },
		"Check":    func(ctx context.Context, s *natsstore.Store) error { _, err := s.Check(ctx); return err },
		"Inspect":  func(ctx context.Context, s *natsstore.Store) error { _, err := s.Inspect(ctx, "warm"); return err },
		"List":     func(ctx context.Context, s *natsstore.Store) error { _, err := s.List(ctx, "", "", 10); return err },
		"Identify": func(ctx context.Context, s *natsstore.Store) error { _, err := s.Identify(ctx); return err },
		"Evict": func(ctx context.Context, s *natsstore.Store) error {
			_, err := s.Evict(ctx, "warm", "seen", backends.Eviction{})
			return err
		},
		"TryLock of a Client": func(ctx context.Context, s *natsstore.Store) error {
			_, err := locker.New(single.New(s)).TryLock(ctx, "key")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := standing(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- call(ctx, store) }()
			select {
			case err := <-ended:
				t.Log(err)
			case <-time.After(patience): // without an end of the write, it would wait for ever
				t.Error("it waits for the connection")
			}
		})
	}
}

// The server takes another connection at once.
func TestLocksGoOnWhileTheConnectionTakesNoMoreBytes(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"at once": 0, "after an idle time": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := standing(t)
			time.Sleep(idle)
			eventually(t, "the lock that is held is renewed", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				ok, err := store.ExpireIf(ctx, "warm", "token", 20*time.Second)
				return ok && err == nil
			})
			woken := make(chan struct{}, 100)
			if err := store.Watch(t.Context(), "b", func() { woken <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				grant(t, store, "b", "token", 20*time.Second)
				if ok, err := store.DeleteIf(t.Context(), "b", "token"); !ok || err != nil {
					t.Fatalf("DeleteIf = %v, %v", ok, err)
				}
			}
			eventually(t, "the releases wake the watcher", func() bool { return len(woken) >= 5 })
		})
	}
}
