package pagelocker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// A browser opens a stream and leaves it, again and again, each time with another query. The page keeps at
// most twice as many views as there may be streams, and drops a view that nobody has after a minute.
func TestViewsThatNobodyHasAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(WithMaxStreams(3))
		look := func(text string) {
			q := query{text: text, sort: sorts[0], page: 1}
			v, news, ok := p.join(q)
			if !ok {
				t.Fatal("no room")
			}
			p.leave(v, news)
		}
		stays := query{text: "stays", sort: sorts[0], page: 1}
		v, news, _ := p.join(stays)
		for n := range 100 {
			look(fmt.Sprint(n))
			time.Sleep(time.Millisecond)
		}
		if n := len(p.streams.views); n > 6 || p.streams.views[stays] != v {
			t.Errorf("%d views; want 6 at most, with the one that somebody has", n)
		}
		if q := (query{text: "99", sort: sorts[0], page: 1}); p.streams.views[q] == nil {
			t.Error("the view that was left last is gone: its browser may come back")
		}
		time.Sleep(2 * viewLife)
		if look("last"); len(p.streams.views) != 2 {
			t.Errorf("%d views two minutes later; want two", len(p.streams.views))
		}
		p.leave(v, news)
	})
}

// However often the page is loaded, the locks are put together at most four times a second.
func TestPlainRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		begin := func(key string) {
			p.registry.begin(t.Context(), contract.Lease{Key: key, Token: "token", Expires: time.Now().Add(time.Hour)})
		}
		begin("a")
		first := p.recent(query{})
		begin("b")
		if time.Sleep(pace - time.Millisecond); !p.recent(query{}).at.Equal(first.at) {
			t.Error("the locks were put together twice within 250 ms")
		}
		if time.Sleep(time.Millisecond); len(p.recent(query{}).all) != 2 {
			t.Error("a lock is not shown after 250 ms")
		}
	})
}

// The page of a browser is a little old. It says so, and the stream brings what has changed since then.
func TestAPageThatIsOldIsBroughtUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		q := query{sort: sorts[0], page: 1}
		v, news, _ := p.join(q)
		old := p.recent(q)
		p.registry.begin(t.Context(), contract.Lease{Key: "a", Token: "token", Expires: time.Now().Add(time.Hour)})
		time.Sleep(pace / 2) // there was an event
		again := p.recent(q)
		p.streams.mu.Lock()
		if parts, order := v.since(again.seq); len(again.all) != len(old.all) || len(parts) == 0 || len(order) != 1 {
			t.Errorf("%d locks and then %d parts, of change %d; want the row to come", len(again.all), len(parts), again.seq)
		}
		p.streams.mu.Unlock()
		p.leave(v, news)
	})
}
