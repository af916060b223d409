package goredis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/go-redis/v9"
)

func TestAStoreOverANilClientAnswersEveryCallWithAnError(t *testing.T) {
	for name, store := range map[string]*redisstore.Store{"nil": goredis.New(nil), "a nil pointer": goredis.New((*client.Client)(nil))} {
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

func TestNilOptionsAreAnErrorOfEveryCall(t *testing.T) {
	const want = "options are nil: they need an Addr at least"
	opened, c := goredis.Open(nil)
	defer c.Close()
	for name, store := range map[string]*redisstore.Store{
		"Open": opened, "Quarantine": goredis.New(c, goredis.Quarantine((*client.Options)(nil))),
		"Quarantine of a cluster": goredis.New(c, goredis.Quarantine((*client.ClusterOptions)(nil))),
	} {
		if _, err := store.SetNX(t.Context(), "key", "token", time.Second); err == nil || err.Error() != want {
			t.Errorf("%s: SetNX = %v", name, err)
		}
	}
	if err := c.Ping(t.Context()).Err(); err == nil || err.Error() != want {
		t.Errorf("the client is connected to somewhere: %v", err)
	}
}
