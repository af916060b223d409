package goredis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// An operator must see a lock, whatever is stored beside it.
func TestALockIsToldWhateverIsStoredBesideIt(t *testing.T) {
	onBoth(t, func(t *testing.T, _ *redisstore.Store, c *client.Client) {
		s := goredis.New(c, redisstore.WithPrefix("app:"))
		for _, key := range []string{"queue", "reserved", "fence"} {
			if r, err := s.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
				t.Fatalf("SetNX = %+v, %v", r, err)
			}
			beside := "{app:" + key + "}:\x00" + key
			if err := c.RPush(t.Context(), beside, "of other software").Err(); err != nil {
				t.Fatal(err)
			}
			state, err := s.Inspect(trial.Patient(t), key)
			if err != nil || state.Holding != 1 {
				t.Errorf("Inspect beside a strange %s = %+v, %v; want one hold", key, state, err)
			}
			if unknown := state.Waiting == backends.NotKnown; unknown != (key != "fence") {
				t.Errorf("beside a strange %s, %d wait", key, state.Waiting)
			}
		}
		page, err := s.List(trial.Patient(t), "", "", backends.MaxPage)
		if err != nil || len(page.Keys) != 3 {
			t.Errorf("List = %+v, %v; want three locks", page, err)
		}
	})
}
