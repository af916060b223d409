package etcd

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestMovesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 30 * time.Second
		var m moves
		for range 10 {
			for i := range 1000 {
				key := fmt.Sprint(i, time.Now())
				m.end(key, m.begin(key), false, longest)
			}
			time.Sleep(longest + afterMove + time.Second)
		}
		if n := len(m.byKey); n > 2000 {
			t.Errorf("%d moves are kept; want those of a short time", n)
		}
		goesOn := m.begin("under way")
		time.Sleep(time.Hour)
		if m.of("under way") != goesOn {
			t.Error("a move that is under way was forgotten")
		}
		m.end("under way", goesOn, false, longest)
		if time.Sleep(longest); m.of("under way") != goesOn {
			t.Error("a move was forgotten before its holder had to renew the key")
		}
		if time.Sleep(afterMove + time.Second); m.of("under way") != nil {
			t.Error("a move was not forgotten")
		}
	})
}

func TestOnlyTheLastMoveOfAKeyIsEnded(t *testing.T) {
	var m moves
	first := m.begin("key")
	last := m.begin("key")
	m.end("key", first, true, time.Minute)
	if m.of("key") != last {
		t.Error("the end of a move has ended a later one")
	}
	m.end("key", last, true, time.Minute)
	if len(m.byKey) > 0 {
		t.Error("a move that has stored its key is kept")
	}
}
