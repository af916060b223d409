package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
)

// A renewal may move a key to a new lease. If that has no answer and arrives late, the new lease ends
// before the time that a later renewal has promised, and somebody else would get the lock.
func TestALateRenewalMovesNoKey(t *testing.T) {
	c, plain := one(t)
	for name, s := range map[string]struct {
		key         string // of etcd
		take        func(ctx context.Context, s *etcd.Store) (bool, error)
		late, renew func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error)
	}{
		"a lock": {at("lock"), lock("lock"), renewLock("lock"), renewLock("lock")},
		"the same attempt, repeated": {at("again"), lock("again"), renewLock("again"), func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
			r, err := s.SetNX(ctx, "again", "token", ttl)
			return r.OK, err
		}},
		"a hold": {at("hold") + "/token", enter("hold"), renewHold("hold"), renewHold("hold")},
		"a hold that goes to another token": {at("moved") + "/token", enter("moved"), func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
			r, err := s.TransferHold(ctx, "moved", "token", "next", ttl, "", true)
			return r.OK, err
		}, renewHold("moved")},
	} {
		t.Run(name, func(t *testing.T) {
			p := new(tap)
			store := etcd.New(dial(t, c.Endpoints(), p.option()))
			if ok, err := s.take(t.Context(), store); err != nil || !ok {
				t.Fatal(ok, err)
			}
			id := leaseNow(t, plain, s.key)
			arrive := withhold(p)
			if ok, err := s.late(t.Context(), store, 20*time.Second); err == nil {
				t.Fatalf("it was answered: %v", ok)
			}
			p.set(nil)
			p.count()
			for range 2 {
				if ok, err := s.renew(t.Context(), store, 10*time.Second); err != nil || !ok {
					t.Fatal(ok, err)
				}
				if leaseNow(t, plain, s.key) != id {
					t.Fatal("the renewal has moved it: this test shows nothing")
				}
			}
			if n := p.count()["LeaseGrant"]; n != 0 {
				t.Errorf("%d new leases; want none", n)
			}
			if err := arrive(); err != nil {
				t.Fatalf("it has not arrived: %v", err)
			}
			if now := leaseNow(t, plain, s.key); now != id {
				t.Errorf("it has lease %x; the holder relies on %x", now, id)
			}
		})
	}
}

// To store a key again is a change of the cluster.
func TestARenewalAfterOneThatWasAnsweredChangesNoKey(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	for name, s := range map[string]struct {
		take  func(ctx context.Context, s *etcd.Store) (bool, error)
		renew func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error)
		calls int // of Txn
	}{
		"a lock": {lock("lock"), renewLock("lock"), 0},
		"a hold": {enter("hold"), renewHold("hold"), 1}, // it reads
	} {
		t.Run(name, func(t *testing.T) {
			if ok, err := s.take(t.Context(), store); err != nil || !ok {
				t.Fatal(ok, err)
			}
			late := withhold(p)
			if ok, err := s.renew(t.Context(), store, 20*time.Second); err == nil {
				t.Fatalf("it was answered: %v", ok)
			}
			p.set(nil)
			if ok, err := s.renew(t.Context(), store, 20*time.Second); err != nil || !ok {
				t.Fatal(ok, err)
			}
			p.count()
			if ok, err := s.renew(t.Context(), store, 10*time.Second); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if n := p.count()["Txn"]; n != s.calls {
				t.Errorf("%d transactions; want %d", n, s.calls)
			}
			if err := late(); err != nil {
				t.Error(err)
			}
		})
	}
}

// withhold keeps the first transaction that stores something from the cluster, until arrive is called. A
// transaction that only reads goes on.
func withhold(p *tap) (arrive func() error) {
	var kept func() error
	granted := false
	p.set(func(method string, call func() error) error {
		granted = granted || method == "LeaseGrant"
		if method != "Txn" || !granted || kept != nil {
			return call()
		}
		kept = call
		return status.Error(codes.Unavailable, "the connection was lost")
	})
	return func() error { return kept() }
}

func leaseNow(t *testing.T, client *clientv3.Client, key string) int64 {
	t.Helper()
	r, err := client.Get(t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%q: %v, %v", key, r, err)
	}
	return r.Kvs[0].Lease
}

func lock(key string) func(ctx context.Context, s *etcd.Store) (bool, error) {
	return func(ctx context.Context, s *etcd.Store) (bool, error) {
		r, err := s.SetNX(ctx, key, "token", 10*time.Second)
		return r.OK, err
	}
}

func renewLock(key string) func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
	return func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
		return s.ExpireIf(ctx, key, "token", ttl)
	}
}

func enter(key string) func(ctx context.Context, s *etcd.Store) (bool, error) {
	return func(ctx context.Context, s *etcd.Store) (bool, error) {
		r, err := s.Enter(ctx, key, "token", 10*time.Second, backends.Admission{})
		return r.OK, err
	}
}

func renewHold(key string) func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
	return func(ctx context.Context, s *etcd.Store, ttl time.Duration) (bool, error) {
		return s.Renew(ctx, key, "token", ttl)
	}
}
