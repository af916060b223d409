package rueidis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

func dialSentinel(t *testing.T, s *redistest.Sentinel) client.Client {
	o := options(s.Addrs()...)
	o.Sentinel.MasterSet = redistest.MasterName
	return connect(t, o)
}

func TestContractThroughSentinel(t *testing.T) {
	t.Parallel()
	c := dialSentinel(t, redistest.StartSentinel(t, 1))
	for _, name := range []string{"plain", "without scripts"} {
		m := modes[name]
		m.connect = func(*testing.T) client.Client { return c }
		t.Run(name, m.run)
	}
}

// The replica knows of the lock when its master dies. Until somebody has taken over nobody knows whose the lock is, and no
// answer may say that it is someone else's, or free.
func TestAHeldLockOutlivesAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	const ttl = 2 * patience
	s := redistest.StartSentinel(t, 1)
	longer := redisstore.WithMaxTTL(ttl)
	replicated := rueidis.New(dialSentinel(t, s), redisstore.WithReplicas(1, 2*time.Second), longer)
	if r, err := replicated.SetNX(t.Context(), "key", "token", ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	holder, other := rueidis.New(dialSentinel(t, s), longer), rueidis.New(dialSentinel(t, s), longer)

	s.AwaitFailover(s.KillMaster())
	eventually(t, "an extension on the new master", func() bool {
		ok, err := holder.ExpireIf(t.Context(), "key", "token", ttl)
		if err == nil && !ok {
			t.Error("an extension was answered wrongly")
		}
		return err == nil
	})
	attempts := 0
	eventually(t, "an attempt on the new master", func() bool {
		attempts++
		r, err := other.SetNX(t.Context(), "key", fmt.Sprint("other", attempts), ttl)
		if err == nil && r.OK {
			t.Error("a held lock was granted")
		}
		return err == nil
	})
	if ok, err := holder.DeleteIf(t.Context(), "key", "token"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
}
