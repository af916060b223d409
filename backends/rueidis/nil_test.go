package rueidis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
)

func TestAStoreOverANilClientAnswersEveryCallWithAnError(t *testing.T) {
	for name, store := range map[string]*redisstore.Store{"nil": rueidis.New(nil)} {
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
	store := rueidis.New(nil, rueidis.Quarantine(nil))
	const want = "options are nil: they need an InitAddress at least"
	if _, err := store.SetNX(t.Context(), "key", "token", time.Second); err == nil || err.Error() != want {
		t.Errorf("SetNX = %v", err)
	}
}
