package redisstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// The mark of a group is alone when someone else lets the key live longer than its holds. The Lua
// of the embedded server does not read its score.
func TestAGroupWithoutAHoldKeepsNobodyOut(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { takesAMarkForFree(t, startEmbedded(t)) })
	t.Run("redis", func(t *testing.T) { takesAMarkForFree(t, redistest.Start(t).Addr()) })
}

func takesAMarkForFree(t *testing.T, addr string) {
	c := dial(t, &client.Options{Addr: addr})
	s := goredis.New(c)
	for _, args := range [][]any{{"ZADD", "key", "inf", "\x00group:readers"}, {"PEXPIRE", "key", 60_000}} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := s.Renew(t.Context(), "key", "token", 20*time.Second); err != nil || ok {
		t.Errorf("Renew = %v, %v; want false", ok, err)
	}
	r, err := s.Enter(t.Context(), "key", "token", 20*time.Second, backends.Admission{Group: "writers", Limit: 1})
	if err != nil || !r.OK || r.Holds != 1 {
		t.Errorf("Enter = %+v, %v; want the only hold", r, err)
	}
	if ok, err := s.Leave(t.Context(), "key", "token"); err != nil || !ok {
		t.Errorf("Leave = %v, %v", ok, err)
	}
}
