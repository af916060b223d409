package sqlstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
