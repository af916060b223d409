package locker

import (
	"testing"
	"time"
)

func TestWhoQuitsWhenItHasJustBecomeTheHeadMakesTheNextOneTheHead(t *testing.T) {
	var ls lines
	ln, place := ls.enter("key", "", time.Second)
	if place != nil {
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

func isTurn(t *testing.T, who string, p *place, want bool) {
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
