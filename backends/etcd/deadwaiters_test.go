package etcd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/backends/etcd"
)

// There is no queue: a waiter is a watch in the stream of its client, and an attempt that finds the lock held
// changes no key. So waiters that have died leave nothing to pass over, and a take and a release cost the
// same after 50 and 500 of them as after none. If their machine is cut off, the server has the watches until
// its keep-alive finds that, and sends each an event of each release.
func TestWaitersThatHaveDiedLeaveNothing(t *testing.T) {
	t.Parallel()
	c, other := one(t)
	var requests, letters atomic.Int64
	store := etcd.New(dial(t, c.Endpoints(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, full string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := next(ctx, full, req, reply, cc, opts...)
			if strings.HasPrefix(full, "/etcdserverpb.KV/") {
				requests.Add(1)
				letters.Add(int64(len(fmt.Sprint(reply)))) // with all keys in it
			}
			return err
		})), etcd.WithMaxTTL(maxTTL))
	take := func(token string) {
		t.Helper()
		if r, err := store.SetNX(t.Context(), "key", token, maxTTL); err != nil || !r.OK {
			t.Fatalf("SetNX = %+v, %v", r, err)
		}
	}
	release := func(token string) {
		t.Helper()
		if ok, err := store.DeleteIf(t.Context(), "key", token); err != nil || !ok {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
	}
	cycle := func() (int64, int64) {
		t.Helper()
		requests.Store(0)
		letters.Store(0)
		take("next")
		release("next")
		return requests.Load(), letters.Load()
	}
	for _, n := range []int{0, 50, 500} {
		take("token")
		before := revision(t, other)
		theirs := dial(t, c.Endpoints())
		waits := etcd.New(theirs, etcd.WithMaxTTL(maxTTL))
		for i := range n {
			if err := waits.Watch(t.Context(), "key", func() {}); err != nil {
				t.Fatal(err)
			}
			if r, err := waits.SetNX(t.Context(), "key", fmt.Sprint("dead", i), maxTTL); err != nil || r.OK {
				t.Fatalf("SetNX of a waiter = %+v, %v", r, err)
			}
		}
		eventually(t, fmt.Sprint("the server has watches: ", n), func() bool { return watches(t, c.Endpoints()[0]) == fmt.Sprint(n) })
		_ = theirs.Close()
		eventually(t, "the server has no watch of a dead waiter", func() bool { return watches(t, c.Endpoints()[0]) == "0" })
		if after := revision(t, other); after != before {
			t.Errorf("%d dead waiters have made %d changes", n, after-before)
		}
		release("token")
		if sent, size := cycle(); sent > 10 || size > 2000 {
			t.Errorf("after %d waiters have died a take and a release send %d requests, and get %d letters; want 10 and 2000 at most", n, sent, size)
		} else {
			t.Logf("after %d dead waiters: %d requests, %d letters", n, sent, size)
		}
	}
}

func revision(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	r, err := client.Get(t.Context(), "lockstep/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || r.Count != 1 {
		t.Fatalf("%+v, %v; want the key of the lock alone", r, err)
	}
	return r.Header.Revision
}

// watches is what a member says of the watches that it has.
func watches(t *testing.T, member string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, member+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "etcd_debugging_mvcc_watcher_total "); ok {
			return strings.TrimSpace(n)
		}
	}
	t.Fatal("the member does not tell how many watches it has")
	return ""
}
