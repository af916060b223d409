package pagelocker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever opens and leaves stream after stream, each with another query, leaves no more views than twice
// the streams, and none after a minute.
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
