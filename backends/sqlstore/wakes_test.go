package sqlstore

import (
	"context"
	"errors"
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
