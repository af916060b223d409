package goredis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/go-redis/v9"
)

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
