package redigo_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
)

func TestAStoreOverANilClientAnswersEveryCallWithAnError(t *testing.T) {
	for name, store := range map[string]*redisstore.Store{"nil": redigo.New(nil)} {
		_, set := store.SetNX(t.Context(), "key", "token", time.Second)
		_, expire := store.ExpireIf(t.Context(), "key", "token", time.Second)
		_, remove := store.DeleteIf(t.Context(), "key", "token")
		watch := store.Watch(t.Context(), "key", func() {})
		for _, err := range []error{set, expire, remove, watch} {
			if err == nil || err.Error() != "client is nil" {
				t.Errorf("%s: error %v; want that the client is nil", name, err)
			}
		}
	}
}

func TestANilPoolIsAnErrorOfEveryCall(t *testing.T) {
	store := redigo.New(nil, redigo.Quarantine(nil, "localhost:6379"))
	if _, err := store.SetNX(t.Context(), "key", "token", time.Second); err == nil || err.Error() != "pool is nil" {
		t.Errorf("SetNX = %v", err)
	}
}
