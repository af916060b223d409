package etcd_test

import (
	"crypto/rand"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// evict ends the only hold of a key, and returns the lease of what closes the key.
func evict(t *testing.T, client *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	store := etcd.New(client)
	state, err := store.Inspect(trial.Patient(t), key)
	if err != nil || len(state.Holds) != 1 {
		t.Fatalf("Inspect = %+v, %v; want one hold", state, err)
	}
	if ok, err := store.Evict(trial.Patient(t), key, state.Holds[0].Print, backends.Eviction{}); err != nil || !ok {
		t.Fatalf("Evict = %v, %v", ok, err)
	}
	return leaseOf(t, client, key)
}

// A renewal reads the key, and then renews its lease. Evict may come in between. The holder then works
// until the end of that renewal.
func TestARenewalThatEvictOvertakesKeepsTheKeyClosed(t *testing.T) {
	const ttl = 4 * time.Second
	for _, shared := range []bool{false, true} {
		c, plain := one(t)
		p := new(tap)
		store, token := etcd.New(dial(t, c.Endpoints(), p.option())), rand.Text()
		var r backends.Result
		var err error
		if shared {
			r, err = store.Enter(t.Context(), "k", token, ttl, backends.Admission{})
		} else {
			r, err = store.SetNX(t.Context(), "k", token, ttl)
		}
		if err != nil || !r.OK {
			t.Fatal(r, err)
		}
		eventually(t, "a part of the lease is over", func() bool {
			left, _ := outside{t, plain}.left(leaseOf(t, plain, "k"))
			return left <= ttl/2
		})
		var lease clientv3.LeaseID
		p.set(func(method string, call func() error) error {
			err := call()
			if lease == 0 && (method == "Range" || method == "Txn") {
				lease = evict(t, plain, "k")
			}
			return err
		})
		began := time.Now()
		var ok bool
		if shared {
			ok, err = store.Renew(t.Context(), "k", token, ttl)
		} else {
			ok, err = store.ExpireIf(t.Context(), "k", token, ttl)
		}
		if err != nil {
			t.Fatal(err)
		}
		left, _ := outside{t, plain}.left(lease)
		if end := time.Now().Add(left + time.Second); ok && end.Before(began.Add(ttl)) { // etcd cuts fractions off
			t.Errorf("shared %v: the key opens %v before the end of a renewal that has succeeded", shared, began.Add(ttl).Sub(end))
		}
	}
}

// leaseOf is the lease of a lock, or of its only hold.
func leaseOf(t *testing.T, client *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	r, err := client.Get(t.Context(), at(key), clientv3.WithRange(at(key)+"0"))
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%q: %v, %v; want one key", key, r, err)
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}

// The holder and the person who evicts it go on with other locks. None of them may have the lease that
// keeps the key closed.
func TestTheLeaseOfAnEvictedHoldIsNotUsedAgain(t *testing.T) {
	_, client := one(t)
	store, token := etcd.New(client), rand.Text()
	closed := map[clientv3.LeaseID]bool{}
	for key, shared := range map[string]bool{"lock": false, "hold": true} {
		if shared {
			if r, err := store.Enter(t.Context(), key, token, 10*time.Second, backends.Admission{}); err != nil || !r.OK {
				t.Fatal(r, err)
			}
		} else if r, err := store.SetNX(t.Context(), key, token, 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		closed[evict(t, client, key)] = true
		var ok bool
		var err error
		if shared {
			ok, err = store.Leave(t.Context(), key, token)
		} else {
			ok, err = store.DeleteIf(t.Context(), key, token)
		}
		if ok || err != nil {
			t.Errorf("the release of the evicted hold of %q = %v, %v", key, ok, err)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if r, err := store.SetNX(t.Context(), key, token, 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if closed[leaseOf(t, client, key)] {
			t.Errorf("%q has the lease of an evicted hold", key)
		}
	}
}

// Without a prefix of the store, its keys lie beside the data of others.
func TestListOfAStoreWithoutAPrefix(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client, etcd.WithPrefix(""))
	for _, other := range []string{"config", "x/y", "-1/", "99/k", "1/", "1/x!", "01/k", "0"} {
		if _, err := client.Put(t.Context(), other, "=by an operator"); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"k", "kk", "a\x00"} {
		if r, err := store.SetNX(t.Context(), key, rand.Text(), 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	_, err := store.List(trial.Patient(t), "", "", 10)
	wantClass(t, "List of an empty prefix", err, true, false)
	_, err = etcd.New(client).List(trial.Patient(t), "", "not hex", 10)
	wantClass(t, "List after what is no Next", err, true, false)
	told := map[string]int{}
	for after := ""; ; {
		page, err := store.List(trial.Patient(t), "k", after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.Keys {
			told[k.Key]++
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(told) != 2 || told["k"] != 1 || told["kk"] != 1 {
		t.Errorf("the pages have %v; want k and kk", told)
	}
}
