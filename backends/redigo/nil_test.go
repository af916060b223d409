package redigo_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redigo"
)

func TestANilPoolIsAnErrorOfEveryCall(t *testing.T) {
	store := redigo.New(nil, redigo.Quarantine(nil, "localhost:6379"))
	if _, err := store.SetNX(t.Context(), "key", "token", time.Second); err == nil || err.Error() != "pool is nil" {
		t.Errorf("SetNX = %v", err)
	}
}
