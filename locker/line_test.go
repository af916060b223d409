package locker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

func TestAHeadThatQuitsAtOnceMakesTheNextWaiterTheHead(t *testing.T) {
	var ls lines
	ln, first := ls.enter("key", "", time.Second)
	if first != nil {
		t.Fatal("the first in line has to wait for its turn")
	}
	_, second := ls.enter("key", "", time.Second)
	_, third := ls.enter("key", "", time.Second)
	ls.leave(ln, Lease{}, false)
	isTurn(t, "the second", second, true)
	isTurn(t, "the third", third, false)
	ls.quit(ln, second) // its ctx ended in the same moment
	isTurn(t, "the third", third, true)
	ls.leave(ln, Lease{}, false)
	if len(ls.byKey) != 0 {
		t.Errorf("%d lines are left", len(ls.byKey))
	}
}

func isTurn(t *testing.T, who string, p *waiter, want bool) {
	t.Helper()
	select {
	case <-p.turn:
		if !want {
			t.Errorf("%s is the head", who)
		}
	default:
		if want {
			t.Errorf("%s is not the head", who)
		}
	}
}

// A process may stand still between the handover and the moment at which the waiter runs.
func TestAWaiterThatIsHandedAnEndedLeaseMakesAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &granting{}
		w := &waiting{Locker: store, lines: &lines{}, cleanups: &cleanup.Queue{}}
		ln, _ := w.lines.enter("key", "", time.Second)
		ln.handed = &Lease{Key: "key", Token: "late", Expires: time.Now()}
		req := Request{Key: "key", Token: "own", TTL: time.Second, wait: &waitPolicy{}}
		lease, err := w.lead(context.Background(), nil, ln, req, &effort{})
		if err != nil || lease.Token != "own" {
			t.Errorf("granted %q, error %v; want its own", lease.Token, err)
		}
		synctest.Wait()
		if !slices.Equal(store.released, []string{"late"}) {
			t.Errorf("released %q; want the one that came too late", store.released)
		}
		w.lines.leave(ln, lease, true)
	})
}

// granting grants everything.
type granting struct {
	Locker
	released []string
}

func (g *granting) Acquire(_ context.Context, req Request) (Lease, error) {
	return Lease{Key: req.Key, Token: req.Token, Expires: Until(time.Now(), req.TTL)}, nil
}

func (g *granting) Release(_ context.Context, lease Lease) error {
	g.released = append(g.released, lease.Token)
	return nil
}
