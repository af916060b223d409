package natsstore_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-go/lockstep/backends/natsstore"
)

// There is no queue: a waiter is a subscription of its connection. So waiters that have died leave nothing
// to pass over, and a take and a release cost the same after 50 and 500 of them as after none. If their
// machine is cut off, the server has the subscriptions until its pings find that, and sends each a message
// of each release.
func TestWaitersThatHaveDiedLeaveNothing(t *testing.T) {
	server := run(t)
	conn := dial(t, server.ClientURL())
	store := natsstore.New(conn, natsstore.WithMaxTTL(maxTTL))
	if err := store.Install(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	o := newOutside(t, conn)
	cycle := func() (sent uint64) { // a take and a release
		t.Helper()
		before := conn.Stats().OutMsgs
		grant(t, store, "key", "next", maxTTL)
		if ok, err := store.DeleteIf(t.Context(), "key", "next"); err != nil || !ok {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
		return conn.Stats().OutMsgs - before
	}
	cycle() // the first one learns of the server
	alone, quiet := cycle(), server.NumSubscriptions()
	for _, n := range []int{50, 500} {
		grant(t, store, "key", "token", maxTTL)
		before, err := o.s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs := dial(t, server.ClientURL())
		waits := natsstore.New(theirs, natsstore.WithMaxTTL(maxTTL))
		for i := range n {
			if err := waits.Watch(t.Context(), "key", func() {}); err != nil {
				t.Fatal(err)
			}
			if r, err := waits.SetNX(t.Context(), "key", fmt.Sprint("dead", i), maxTTL); err != nil || r.OK {
				t.Fatalf("SetNX of a waiter = %+v, %v", r, err)
			}
		}
		if all := server.NumSubscriptions(); int(all-quiet) < n {
			t.Fatalf("%d waiters have %d subscriptions", n, all-quiet)
		}
		theirs.Close()
		eventually(t, "the server has no subscription of a dead waiter", func() bool { return server.NumSubscriptions() <= quiet })
		after, err := o.s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if after.State.LastSeq != before.State.LastSeq || after.State.Consumers != before.State.Consumers {
			t.Errorf("%d dead waiters have left %d messages and %d consumers", n, after.State.LastSeq-before.State.LastSeq, after.State.Consumers-before.State.Consumers)
		}
		if ok, err := store.DeleteIf(t.Context(), "key", "token"); err != nil || !ok {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
		if sent := cycle(); sent > alone+10 {
			t.Errorf("a take and a release send %d messages after %d waiters have died; want about %d, as without them", sent, n, alone)
		}
	}
	t.Logf("%d messages", alone)
}
