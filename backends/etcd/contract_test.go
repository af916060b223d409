package etcd_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const maxTTL = time.Hour

// resolution: a lease has whole seconds, and 2 at least; etcd looks twice a second for those that have
// ended.
const resolution = 3 * time.Second

func TestContract(t *testing.T) {
	t.Parallel() // with the strategies: both wait for most of their time
	_, client := one(t)
	store := etcd.New(client, etcd.WithMaxTTL(maxTTL))
	o := func(t *testing.T) outside { return outside{t, client} }
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
			return store, o(t)
		}})
	})
	t.Run("NumberedStore", func(t *testing.T) {
		t.Parallel()
		backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoQueue: true, New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) {
			return store, o(t)
		}})
	})
	t.Run("SharedStore", func(t *testing.T) {
		t.Parallel()
		backendtest.RunShared(t, backendtest.SharedHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, New: func(t *testing.T) (backends.SharedStore, backendtest.SharedOutside) {
			return store, o(t)
		}})
	})
	t.Run("Guard", func(t *testing.T) {
		t.Parallel()
		backendtest.RunGuard(t, backendtest.GuardHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, New: func(t *testing.T) (backendtest.GuardedStore, backendtest.SharedOutside) {
			return transactions{store, client}, o(t)
		}})
	})
	t.Run("TransferStore", func(t *testing.T) {
		t.Parallel()
		backendtest.RunTransfer(t, backendtest.TransferHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, New: func(t *testing.T) (backends.TransferStore, backendtest.SharedOutside) {
			return store, o(t)
		}})
	})
	t.Run("Inspector", func(t *testing.T) {
		t.Parallel()
		backendtest.RunInspector(t, backendtest.InspectorHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoLast: true, New: func(t *testing.T) (backendtest.InspectedStore, backendtest.SharedOutside) {
			return store, o(t)
		}})
	})
}

// outside reads and changes the keys past the store.
type outside struct {
	t      *testing.T
	client *clientv3.Client
}

// at is where the store keeps the lock of a key.
func at(key string) string { return "lockstep/" + strconv.Itoa(len(key)) + "/" + key }

// Get reads the lock, or the hold that lives longest.
func (o outside) Get(key string) (value string, left time.Duration, ok bool) {
	o.t.Helper()
	r, err := o.client.Get(context.Background(), at(key), clientv3.WithRange(at(key)+"0"))
	if err != nil {
		o.t.Error(err)
		return "", 0, false
	}
	for _, kv := range r.Kvs {
		life := time.Duration(0)
		if kv.Lease != 0 {
			if life, ok = o.left(clientv3.LeaseID(kv.Lease)); !ok {
				continue
			}
		}
		if string(kv.Key) == at(key) {
			if text, ours := strings.CutPrefix(string(kv.Value), "="); ours {
				return text, life, true
			}
			return "", life, true
		}
		left, ok = max(left, life), true
	}
	return "", left, ok
}

func (o outside) left(lease clientv3.LeaseID) (time.Duration, bool) {
	o.t.Helper()
	life, err := o.client.TimeToLive(context.Background(), lease)
	if err != nil {
		o.t.Error(err)
		return 0, false
	}
	return max(time.Duration(life.TTL)*time.Second, time.Millisecond), life.TTL >= 0
}

func (o outside) put(at, value string, ttl time.Duration) {
	o.t.Helper()
	var opts []clientv3.OpOption
	if ttl > 0 {
		lease, err := o.client.Grant(context.Background(), int64((ttl+time.Second-1)/time.Second))
		if err != nil {
			o.t.Error(err)
			return
		}
		opts = append(opts, clientv3.WithLease(lease.ID))
	}
	if _, err := o.client.Put(context.Background(), at, value, opts...); err != nil {
		o.t.Error(err)
	}
}

func (o outside) Set(key, value string, ttl time.Duration) {
	o.t.Helper()
	o.put(at(key), "="+value, ttl)
}
func (o outside) SetOther(key string)  { o.t.Helper(); o.put(at(key), "-", 0) }
func (o outside) SetShared(key string) { o.t.Helper(); o.put(at(key)+"/foreign", "-", 0) }

// Delete deletes the lock and the holds, and what else there is of the key.
func (o outside) Delete(key string) {
	o.t.Helper()
	if _, err := o.client.Delete(context.Background(), at(key), clientv3.WithRange(at(key)+"0")); err != nil {
		o.t.Error(err)
	}
}

// transactions are those of an application that are guarded.
type transactions struct {
	*etcd.Store
	client *clientv3.Client
}

func (transactions) Isolations() []string { return []string{"serializable"} }

func (s transactions) Begin(ctx context.Context, _ string) (commit func(key, token string, shared bool, between func()) error, err error) {
	return func(key, token string, shared bool, between func()) error {
		l := contract.Lease{Key: key, Token: token}
		guard := s.Guard(l)
		if shared {
			guard = s.GuardHold(l)
		}
		between()
		r, err := s.client.Txn(ctx).If(guard).Then(clientv3.OpPut("guarded", key)).Commit()
		if err == nil && !r.Succeeded {
			err = locker.ErrLost
		}
		return err
	}, nil
}
