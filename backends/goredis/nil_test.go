package goredis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redis"
	client "github.com/redis/go-redis/v9"
)

func TestAStoreOverANilClientAnswersEveryCallWithAnError(t *testing.T) {
	for name, store := range map[string]*redis.Store{"nil": goredis.New(nil), "a nil pointer": goredis.New((*client.Client)(nil))} {
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
