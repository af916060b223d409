package redigo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// Redigo does not tell where a connection leads, so another server might be there.
func TestADeclarationIsNotBelievedOverRedigo(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	store, pool := redigo.Open(server.Addr(), nil, redisstore.WithServerThatForgetsNothing())
	t.Cleanup(func() { pool.Close() })
	if r, err := store.SetNX(t.Context(), "key", "mine", time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	server.Kill()
	server.Restart()
	var err error
	for range 20 { // the connections of before are used up
		if _, err = store.SetNX(t.Context(), "other", "mine", time.Second); err != nil && strings.Contains(err.Error(), "quarantine") {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "that it forgets nothing is not believed, since it may answer at another address") {
		t.Errorf("SetNX = %v; want quarantine", err)
	}
}
