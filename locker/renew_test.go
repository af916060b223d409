package locker

import (
	"testing"
	"time"
)

// The scheduler can look at a lock in the moment in which an extension by hand has been answered, by the due time from before.
func TestALookAtALeaseThatWasJustMadeLongerExtendsNothing(t *testing.T) {
	now := time.Now()
	l := &Lock{client: &Client{renewals: renewals{origin: now}}, ttl: 3 * time.Second, extend: true, lease: Lease{Key: "key", Expires: now.Add(time.Minute)}}
	l.ctx.Context = t.Context()
	what, due := l.act(now, true)
	if want := now.Add(57990 * time.Millisecond); what != actNothing || !due.Equal(want) {
		t.Errorf("act = %v, next look at %v; want nothing, and a look at %v", what, due, want)
	}
	if l.extensions != nil {
		t.Error("an extension is counted in")
	}
}
