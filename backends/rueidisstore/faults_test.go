package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestALifetimeOfConnectionsSendsTwice is why Open takes none.
func TestALifetimeOfConnectionsSendsTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := options(proxy.Addr())
	o.ConnLifetime = 500 * time.Millisecond
	o.ForceSingleClient = true // there are fewer connections before ours
	store := rueidisstore.New(connect(t, o))
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"SET"}})
	if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK {
		t.Errorf("SetNX = %v, %v", r, err)
	}
	if n := proxy.Count("SET"); n != 2 {
		t.Errorf("SET was sent %d times: what the package says of ConnLifetime is out of date", n)
	}
}
