package rueidisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestALockWhoseSlotHasMovedIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := dial(t, cluster.Addrs()...)
	scripts, optimistic := rueidisstore.New(c), rueidisstore.New(c, redisstore.WithoutScripts())
	for i, to := range cluster.Masters() {
		key := cluster.KeyOn(cluster.Masters()[(i+1)%3], "key-%d")
		setNX(t, scripts, key)
		cluster.MoveSlot(key, to)
		if r, err := scripts.SetNX(t.Context(), key, "other", 20*time.Second); err != nil || r.OK {
			t.Errorf("SetNX of another = %+v, %v", r, err)
		}
		if ok, err := scripts.ExpireIf(t.Context(), key, "token", 25*time.Second); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
		eventually(t, "an answer to what needs a connection of its own", func() bool { // when the client has asked anew
			ok, err := optimistic.ExpireIf(t.Context(), key, "token", 30*time.Second)
			if moved := (*redisstore.ReplyError)(nil); err != nil && (!errors.As(err, &moved) || moved.Code() != "MOVED") {
				t.Errorf("ExpireIf = %v", err)
			}
			return ok
		})
		if ok, err := optimistic.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Errorf("DeleteIf = %v, %v", ok, err)
		}
	}
}

func TestCallsGoToTheNewMasterAfterAFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	c := dial(t, cluster.Addrs()...)
	store := rueidisstore.New(c)
	key := cluster.KeyOn(cluster.Masters()[0], "key-%d")
	setNX(t, store, key)
	dead := cluster.KillMaster(key)
	cluster.AwaitFailover(key, dead)
	eventually(t, "an answer of the new master", func() bool {
		_, err := store.SetNX(t.Context(), key, "other", 20*time.Second)
		return err == nil
	})
}
