package natsstore

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A server that has forgotten its last messages gives their sequences to other keys.
func TestAnAnswerOverAConnectionBeforeIsNotRemembered(t *testing.T) {
	g := &grants{remade: make(chan nats.Status, 1)}
	before := g.connection()
	g.put("a", "token", &entry{seq: 1, ttl: 60, connection: before})
	if g.get("a", "token") == nil {
		t.Fatal("the answer over the connection of today is forgotten")
	}
	g.remade <- nats.CONNECTED
	g.put("b", "token", &entry{seq: 2, ttl: 60, connection: before})
	for _, key := range []string{"a", "b"} {
		if g.get(key, "token") != nil {
			t.Errorf("the sequence of %s was told over the connection before, and is remembered", key)
		}
	}
	if g.connection() == before {
		t.Error("the connections have one number")
	}
}
