package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/rueidisstore"
)

func TestNilOptionsAreAnErrorOfEveryCall(t *testing.T) {
	store := rueidisstore.New(nil, rueidisstore.Quarantine(nil))
	const want = "options are nil: they need an InitAddress at least"
	if _, err := store.SetNX(t.Context(), "key", "token", time.Second); err == nil || err.Error() != want {
		t.Errorf("SetNX = %v", err)
	}
}
