package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// Anyone may publish on the channel of a store.
func TestAMessageThatTellsNobodyHisTurnWakesNobody(t *testing.T) {
	for _, message := range []string{"", "r", "n", "@", "r@", "rw", "rw@", "rw@another key", "nw@another key", "ranother@k", "nanother@k", "w@k"} {
		synctest.Test(t, func(t *testing.T) {
			s := New(&answers{reply: int64(0)})
			s.turns.add(&turn{key: "k", waiter: "w", wake: func() { t.Errorf("woken by %q", message) }})
			s.heard(message)
			time.Sleep(time.Second)
		})
	}
}
