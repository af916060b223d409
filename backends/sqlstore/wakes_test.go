package sqlstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// silent is a pool without a connection.
type silent struct{ Pool }

func (silent) Acquire(context.Context) (Conn, error) { return nil, errors.New("there is none") }

// unreliable is a Listener whose connections are lost at once. Each time it is asked it says so; those of
// works deliver the message of the store first.
type unreliable struct {
	at    []time.Time
	works map[int]bool
}

func (l *unreliable) Listen(_ context.Context, _ string, active func(), heard func(string)) error {
	l.at = append(l.at, time.Now())
	if l.works[len(l.at)] {
		active()
		heard("p")
	}
	return errors.New("the connection was lost")
}

func (*unreliable) Serves() bool { return false }

// The pause doubles from 10 ms up to a second, and begins anew after a connection that worked.
func TestAListenerIsOpenedAgainMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &unreliable{works: map[int]bool{12: true}}
		s := PostgreSQLOver(silent{}, l)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		leave, err := s.wakes.join(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		leave()
		synctest.Wait()
		pause := 10 * time.Millisecond
		for i := 1; i < len(l.at); i++ {
			if i == 12 {
				pause = 10 * time.Millisecond
			}
			if got := l.at[i].Sub(l.at[i-1]); got != pause {
				t.Errorf("attempt %d came after %v; want %v", i+1, got, pause)
			}
			pause = min(2*pause, time.Second)
		}
		if len(l.at) < 15 {
			t.Errorf("%d attempts in 10 s; want them to go on", len(l.at))
		}
	})
}

// serving is a Listener whose connection serves calls of the store.
type serving struct{ open, ended atomic.Int64 }

func (l *serving) Serves() bool { return l.open.Load() > l.ended.Load() }

func (l *serving) Listen(ctx context.Context, _ string, active func(), heard func(string)) error {
	l.open.Add(1)
	defer l.ended.Add(1)
	active()
	heard("p")
	<-ctx.Done()
	return ctx.Err()
}

// It has served the grant, and the release needs it.
func TestAConnectionThatServesCallsStaysUntilTheLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(serving)
		s := PostgreSQLOver(silent{}, l)
		s.own.open = nil
		wait := func() {
			t.Helper()
			leave, err := s.wakes.join(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		want := func(when string, opened, ended int64) {
			t.Helper()
			synctest.Wait()
			if o, e := l.open.Load(), l.ended.Load(); o != opened || e != ended {
				t.Errorf("%s: %d opened, %d ended; want %d and %d", when, o, e, opened, ended)
			}
		}
		wait()
		s.own.hold("k", "token", time.Hour)
		time.Sleep(30 * time.Minute)
		want("while a lock is held", 1, 0)
		s.own.drop("k", "token")
		for range 10 {
			time.Sleep(reserveIdle * 9 / 10)
			want("when calls wait again and again", 1, 0)
			wait()
		}
		time.Sleep(3 * reserveIdle)
		want("after the last lock", 1, 1)
		wait()
		want("for a new waiter", 2, 1)
		time.Sleep(3 * reserveIdle)
		want("without a lock", 2, 2)
		if s.wakes.look != nil || s.wakes.stop != nil {
			t.Error("something is looked after although nobody waits and no lock is held")
		}
	})
}

// notified is a pool whose messages a listener hears. What a store sends to itself meets what each test sets.
type notified struct {
	Pool
	none    time.Duration // there is no connection for so long
	slow    time.Duration // the database answers so late
	deaf    int           // so many messages do not come; negative: none comes
	refused error         // the database takes none

	began time.Time
	sent  int
	came  chan string
}

func (n *notified) Room() bool                         { return true }
func (n *notified) Max() (connections int, _ string)   { return 0, "" }
func (n *notified) Close()                             {}
func (n *notified) Serves() bool                       { return false }
func (n *notified) Open(context.Context) (Conn, error) { return n, nil }

func (n *notified) Acquire(context.Context) (Conn, error) {
	if time.Since(n.began) < n.none {
		return nil, errors.New("the pool is used up")
	}
	return n, nil
}

func (n *notified) Row(ctx context.Context, statement string, _ []any, dest ...any) error {
	if !strings.Contains(statement, "pg_notify") {
		return nil
	}
	select {
	case <-time.After(n.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.refused != nil {
		return n.refused
	}
	if n.sent++; n.deaf >= 0 && n.sent > n.deaf {
		n.came <- "p"
	}
	return nil
}

func (n *notified) Listen(ctx context.Context, _ string, active func(), heard func(string)) error {
	active()
	for {
		select {
		case m := <-n.came:
			heard(m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Waiters poll only if messages that the database has taken do not come. Else they would go on to poll for
// as long as one of them waits, outside the queue.
func TestALateMessageIsNoReasonToPoll(t *testing.T) {
	for name, c := range map[string]struct {
		notified
		polls bool
		after time.Duration
	}{
		"a server at hand":                  {notified{}, false, 0},
		"a database that answers after 4 s": {notified{slow: 4 * time.Second}, false, 4 * time.Second},
		"no connection for a minute":        {notified{none: time.Minute}, false, time.Minute},
		"a message that is lost":            {notified{deaf: 1}, false, time.Second},
		"messages that never come":          {notified{deaf: -1}, true, 2 * time.Second},
		"a permission that is missing":      {notified{refused: backends.Invalidf("permission denied")}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &c.notified
				n.began, n.came = time.Now(), make(chan string, 1)
				s := PostgreSQLOver(n, n)
				leave, err := s.wakes.join(t.Context())
				if polls := errors.Is(err, errors.ErrUnsupported); polls != c.polls || err != nil && !polls {
					t.Errorf("join = %v; want it to poll: %v", err, c.polls)
				}
				if took := time.Since(n.began); took != c.after {
					t.Errorf("it took %v; want %v", took, c.after)
				}
				if err == nil {
					leave()
				}
				time.Sleep(time.Minute) // until each goroutine has ended
			})
		})
	}
}

// registry is a pool of a database that knows which keys are registered.
type registry struct {
	*notified
	mu   sync.Mutex
	keys map[string]bool
}

func (r *registry) Acquire(context.Context) (Conn, error) { return r, nil }

func (r *registry) Row(ctx context.Context, statement string, args []any, dest ...any) error {
	r.mu.Lock()
	switch statement {
	case "SELECT lockstep.watch($1,$2)":
		r.keys[string(args[0].([]byte))] = true
	case "SELECT lockstep.unwatch($1,$2)":
		delete(r.keys, string(args[0].([]byte)))
	}
	r.mu.Unlock()
	return r.notified.Row(ctx, statement, args, dest...)
}

func TestAKeyIsRegisteredUntilItsLastWatcherLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{notified: &notified{came: make(chan string, 1)}, keys: map[string]bool{}}
		s := PostgreSQLOver(r, r)
		watch := func(key string) (leave func()) {
			t.Helper()
			ctx, leave := context.WithCancel(t.Context())
			if err := s.Watch(ctx, key, func() {}); err != nil {
				t.Fatal(err)
			}
			return leave
		}
		want := func(keys ...string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if got := slices.Sorted(maps.Keys(r.keys)); !slices.Equal(got, keys) {
				t.Errorf("%q are registered; want %q", got, keys)
			}
		}
		first, second, other := watch("a"), watch("a"), watch("b")
		want("a", "b")
		first()
		want("a", "b")
		second()
		want("b")
		again := watch("a")
		want("a", "b")
		again()
		other()
		want()
		time.Sleep(time.Minute) // until each goroutine has ended
	})
}
