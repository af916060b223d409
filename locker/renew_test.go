package locker

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// The scheduler may look at a lock, at its old due time, just when an extension by hand was answered.
func TestALookAtALeaseThatWasJustExtendedRenewsNothing(t *testing.T) {
	now := time.Now()
	h := &hold{
		client: &Client{renewals: scheduler{origin: now}}, parent: t.Context(), terms: terms{ttl: 3 * time.Second, renewed: true},
		lease: grant{Lease: contract.Lease{Key: "key", Expires: now.Add(time.Minute)}},
	}
	v := h.look(now)
	if want := now.Add(57990 * time.Millisecond); v.what != actNothing || !v.due.Equal(want) {
		t.Errorf("look = %v, next look at %v; want nothing, and a look at %v", v.what, v.due, want)
	}
	if h.extensions.first != nil {
		t.Error("an extension is counted in")
	}
}
