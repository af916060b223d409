package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
)

// steady returns a store whose next SetNX takes a spare lease, and does not look first.
func steady(t *testing.T, client *clientv3.Client) *etcd.Store {
	t.Helper()
	store := etcd.New(client)
	for range 2 {
		if r, err := store.SetNX(t.Context(), "before", "token", 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), "before", "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	return store
}

func there(t *testing.T, client *clientv3.Client, key string) bool {
	t.Helper()
	r, err := client.Get(t.Context(), at(key))
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Kvs) > 0
}

// The lease may be near its end when it gets the key.
func TestAKeyIsNoGrantBeforeItsLeaseWasRenewed(t *testing.T) {
	c, plain := one(t)
	var held atomic.Bool
	renew, granted := make(chan struct{}), make(chan error, 1)
	store := steady(t, dial(t, c.Endpoints(), renewals(func(_ *pb.LeaseKeepAliveResponse, call func() error) error {
		if held.Load() {
			<-renew
		}
		return call()
	})))
	held.Store(true)
	go func() {
		r, err := store.SetNX(t.Context(), "k", "token", 10*time.Second)
		if err == nil && !r.OK {
			t.Error("refused")
		}
		granted <- err
	}()
	eventually(t, "the key is there", func() bool { return there(t, plain, "k") })
	select {
	case <-granted:
		t.Error("granted before the answer to the renewal")
	default:
	}
	close(renew)
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

func TestARenewalWithoutAnAnswerIsUnknownAndCanBeReleased(t *testing.T) {
	c, plain := one(t)
	var silent atomic.Bool
	stop := make(chan struct{})
	store := steady(t, dial(t, c.Endpoints(), renewals(func(_ *pb.LeaseKeepAliveResponse, call func() error) error {
		if silent.Load() {
			<-stop
			return context.DeadlineExceeded
		}
		return call()
	})))
	silent.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() {
		_, err := store.SetNX(ctx, "k", "token", 10*time.Second)
		told <- err
	}()
	eventually(t, "the key is there", func() bool { return there(t, plain, "k") })
	cancel()
	close(stop)
	wantClass(t, "SetNX", <-told, false, false)
	if ok, err := store.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
		t.Error(ok, err)
	}
}

// A member may refuse both the renewal and the deletion that undoes the transaction. The key is there then.
func TestAGrantThatCannotBeUndoneIsUnknown(t *testing.T) {
	c, plain := one(t)
	for _, told := range []error{rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCPermissionDenied} {
		var refuses atomic.Bool
		p := new(tap)
		client := dial(t, c.Endpoints(), p.option(), renewals(func(_ *pb.LeaseKeepAliveResponse, call func() error) error {
			if refuses.Load() {
				return told
			}
			return call()
		}))
		store := steady(t, client)
		refuses.Store(true)
		granted := false
		p.set(func(method string, call func() error) error {
			if method != "Txn" || !granted {
				granted = granted || method == "Txn"
				return call()
			}
			return told
		})
		_, err := store.SetNX(t.Context(), "k", "token", 10*time.Second)
		wantClass(t, "SetNX", err, false, false)
		p.set(nil)
		if !there(t, plain, "k") {
			t.Error("the key is not there")
		}
		if ok, err := store.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
			t.Error(ok, err)
		}
	}
}

// Each member has a shortest lease of its own: a lease that one has made longer may be short on the
// next leader.
func TestALeaseThatIsTooShortIsReplaced(t *testing.T) {
	c, plain := one(t)
	var short atomic.Bool
	store := steady(t, dial(t, c.Endpoints(), renewals(func(r *pb.LeaseKeepAliveResponse, call func() error) error {
		err := call()
		if short.Swap(false) {
			r.TTL = 9
		}
		return err
	})))
	before := spareOf(t, store, plain)
	short.Store(true)
	if r, err := store.SetNX(t.Context(), "k", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if short.Load() || lease(t, plain, "k") == before {
		t.Error("the lock has the lease that is too short")
	}
}

// spareOf is the lease that the next SetNX of a store takes.
func spareOf(t *testing.T, store *etcd.Store, client *clientv3.Client) int64 {
	t.Helper()
	if r, err := store.SetNX(t.Context(), "spare", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	id := lease(t, client, "spare")
	if ok, err := store.DeleteIf(t.Context(), "spare", "token"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	return id
}

// The renewal may be told of the end of the lease when the key is there already: by a member that is behind.
func TestALeaseThatEndsOnTheWayIsReplaced(t *testing.T) {
	c, plain := one(t)
	var ended atomic.Bool
	store := steady(t, dial(t, c.Endpoints(), renewals(func(_ *pb.LeaseKeepAliveResponse, call func() error) error {
		if ended.Swap(false) {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		return call()
	})))
	ended.Store(true)
	if r, err := store.SetNX(t.Context(), "k", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if ended.Load() || !there(t, plain, "k") {
		t.Error("nothing was renewed, or the key is gone")
	}
}

// No cluster is known to do so, unless its data is damaged.
func TestAKeyThatNamesALeaseThatDoesNotExistEndsEachCall(t *testing.T) {
	c, _ := one(t)
	var asked atomic.Int32
	store := etcd.New(dial(t, c.Endpoints(), renewals(func(*pb.LeaseKeepAliveResponse, func() error) error {
		asked.Add(1)
		return rpctypes.ErrGRPCLeaseNotFound
	})))
	const ttl = 20 * time.Second
	lock := func(ctx context.Context) error { _, err := store.SetNX(ctx, "k", "token", ttl); return err }
	enter := func(ctx context.Context) error {
		_, err := store.Enter(ctx, "shared", "token", ttl, backends.Admission{})
		return err
	}
	for _, first := range []func(context.Context) error{lock, enter} {
		if err := first(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"SetNX":    lock,
		"Enter":    enter,
		"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "k", "token", ttl); return err },
		"Renew":    func(ctx context.Context) error { _, err := store.Renew(ctx, "shared", "token", ttl); return err },
		"Transfer": func(ctx context.Context) error {
			_, err := store.Transfer(ctx, "k", "token", "next", ttl, true)
			return err
		},
		"TransferHold": func(ctx context.Context) error {
			_, err := store.TransferHold(ctx, "shared", "token", "next", ttl, "", true)
			return err
		},
	} {
		asked.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2) // while the leases live
		err := call(ctx)
		cancel()
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) || !strings.Contains(err.Error(), "etcdctl endpoint hashkv") {
			t.Errorf("%s, after %d renewals: %v", name, asked.Load(), err)
		}
		wantClass(t, name, err, false, false)
	}
}

func TestTheLeaseOfAnotherTTLIsNotUsed(t *testing.T) {
	c, plain := one(t)
	store := steady(t, dial(t, c.Endpoints()))
	for _, seconds := range []int64{3, 20, 10, 3} {
		if r, err := store.SetNX(t.Context(), "k", "token", time.Duration(seconds)*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		life, err := plain.TimeToLive(t.Context(), clientv3.LeaseID(lease(t, plain, "k")))
		if err != nil || life.GrantedTTL != seconds {
			t.Errorf("the lease lives for %v, %v; want %d s", life, err, seconds)
		}
		if ok, err := store.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
}
