package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestGuard(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client, etcd.WithMaxTTL(maxTTL))
	for name, tt := range map[string]struct {
		locker locker.Locker
		guard  func(contract.Lease) clientv3.Cmp
	}{
		"single":    {single.New(store), store.Guard},
		"fenced":    {fenced.New(store), store.Guard},
		"semaphore": {semaphore.New(store, 1), store.GuardHold},
		"reentrant": {reentrant.New(store), store.GuardHold},
	} {
		t.Run(name, func(t *testing.T) {
			locks := locker.New(tt.locker, locker.WithTTL(10*time.Minute))
			write := func(l *locker.Lock) bool {
				t.Helper()
				r, err := client.Txn(t.Context()).If(tt.guard(l.Lease())).Then(clientv3.OpPut("data", name)).Commit()
				if err != nil {
					t.Fatal(err)
				}
				return r.Succeeded
			}
			l, err := locks.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if !write(l) {
				t.Error("the holder may not write")
			}
			ticket, err := l.Transfer(t.Context(), 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			next, err := locks.Resume(t.Context(), ticket)
			if err != nil {
				t.Fatal(err)
			}
			if write(l) || !write(next) {
				t.Error("after a transfer, the old holder may write or the new one may not")
			}
			outside{t, client}.Delete(name)
			if write(next) {
				t.Error("a holder may write whose lock is free")
			}
			other, err := locks.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if write(next) || !write(other) {
				t.Error("a holder may write behind the next one, or the next one may not")
			}
		})
	}
}

// Locks of the two kinds have keys of their own in etcd, and still exclude each other.
func TestALockAndAHoldOfOneKeyExcludeEachOther(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client)
	for range 50 {
		var lock, hold atomic.Bool
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			r, err := store.SetNX(t.Context(), "k", "lock", 10*time.Second)
			lock.Store(r.OK)
			if err != nil && !errors.Is(err, backends.ErrWrongType) {
				t.Error(err)
			}
		})
		both.Go(func() {
			<-start
			r, err := store.Enter(t.Context(), "k", "hold", 10*time.Second, backends.Admission{})
			hold.Store(r.OK)
			if err != nil && !errors.Is(err, backends.ErrWrongType) {
				t.Error(err)
			}
		})
		close(start)
		both.Wait()
		if lock.Load() == hold.Load() {
			t.Fatalf("granted: lock %v, hold %v; want one of them", lock.Load(), hold.Load())
		}
		if hold.Load() {
			if _, err := store.DeleteIf(t.Context(), "k", "lock"); !errors.Is(err, backends.ErrWrongType) {
				t.Errorf("DeleteIf beside a hold = %v", err)
			}
		}
		outside{t, client}.Delete("k")
	}
}

// Counterexample: Inspect of such a key tells that the key is free, and nobody gets it.
func TestAHoldThatNoStoreHasWrittenIsOfAnotherTypeToEachCall(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client)
	outside{t, client}.put(at("k")+"/token", "not a hold", 10*time.Second)
	for name, call := range map[string]func() error{
		"Enter": func() error {
			_, err := store.Enter(t.Context(), "k", "other", 10*time.Second, backends.Admission{})
			return err
		},
		"Inspect": func() error { _, err := store.Inspect(trial.Patient(t), "k"); return err },
		"Evict": func() error {
			_, err := store.Evict(trial.Patient(t), "k", backends.PrintOf("token"), backends.Eviction{})
			return err
		},
	} {
		if err := call(); !errors.Is(err, backends.ErrWrongType) {
			t.Errorf("%s = %v; want an error that matches ErrWrongType", name, err)
		}
	}
}

func TestKeysThatLookLikeHoldsOfOthersAreApart(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client)
	if r, err := store.Enter(t.Context(), "a", "b", 10*time.Second, backends.Admission{}); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	for _, key := range []string{"a/b", "a#", "1/a", "", "a/"} {
		if r, err := store.SetNX(t.Context(), key, "token", 10*time.Second); err != nil || !r.OK {
			t.Errorf("SetNX(%q) beside a hold of another key = %+v, %v", key, r, err)
		}
	}
	if r, err := store.Enter(t.Context(), "a", "c", 10*time.Second, backends.Admission{Limit: 2}); err != nil || r.Holds != 2 {
		t.Errorf("Enter = %+v, %v; want 2 holds", r, err)
	}
}

func TestAnElectionGoesOnWithTheNextCandidate(t *testing.T) {
	_, client := one(t)
	type term struct {
		who    int
		number uint64
	}
	led := make(chan term)
	var stops [2]context.CancelFunc
	var all sync.WaitGroup
	for who := range stops {
		ctx, cancel := context.WithCancel(t.Context())
		stops[who] = cancel
		e := election.New(locker.New(fenced.New(etcd.New(client)), locker.WithTTL(3*time.Second)), "leader")
		all.Go(func() {
			_ = e.Run(ctx, func(ctx context.Context, is election.Term) error {
				led <- term{who, is.Number}
				<-ctx.Done()
				return ctx.Err()
			})
		})
	}
	first := <-led
	if seen, err := etcd.New(client).Inspect(trial.Patient(t), "leader"); err != nil || seen.Holding != 1 || seen.Fence != first.number {
		t.Errorf("Inspect = %+v, %v; want the number %d", seen, err, first.number)
	}
	stops[first.who]()
	second := <-led
	if second.who == first.who || second.number <= first.number {
		t.Errorf("%+v leads after %+v", second, first)
	}
	stops[second.who]()
	all.Wait()
}

// The table of permissions in docs/stores/etcd.md.
func TestAUserNeedsThePrefixAndNothingElse(t *testing.T) {
	c, root := one(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(root.RoleAdd(ctx, "root"))
	must(root.UserAdd(ctx, "root", "secret"))
	must(root.UserGrantRole(ctx, "root", "root"))
	for user, kind := range map[string]authpb.Permission_Type{"app": authpb.READWRITE, "reader": authpb.READ} {
		must(root.RoleAdd(ctx, user))
		must(root.RoleGrantPermission(ctx, user, "lockstep/", clientv3.GetPrefixRangeEnd("lockstep/"), clientv3.PermissionType(kind)))
		must(root.UserAdd(ctx, user, "secret"))
		must(root.UserGrantRole(ctx, user, user))
	}
	must(root.AuthEnable(ctx))
	as := func(user string, opts ...grpc.DialOption) *clientv3.Client {
		return dialAs(t, clientv3.Config{Endpoints: c.Endpoints(), Username: user, Password: "secret", DialOptions: opts})
	}

	p := new(tap)
	store := etcd.New(as("app", p.option()))
	if err := store.Watch(ctx, "k", func() {}); err != nil {
		t.Errorf("Watch = %v", err)
	}
	if r, err := store.SetNX(ctx, "k", "one", 10*time.Second); err != nil || !r.OK {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
	if ok, err := store.ExpireIf(ctx, "k", "one", 20*time.Second); err != nil || !ok {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	if r, err := store.Transfer(ctx, "k", "one", "two", 20*time.Second, true); err != nil || !r.OK {
		t.Errorf("Transfer = %+v, %v", r, err)
	}
	if state, err := store.Inspect(ctx, "k"); err != nil || state.Holding != 1 {
		t.Errorf("Inspect = %+v, %v", state, err)
	}
	if page, err := store.List(ctx, "", "", 10); err != nil || len(page.Keys) != 1 {
		t.Errorf("List = %+v, %v", page, err)
	}
	if ok, err := store.DeleteIf(ctx, "k", "two"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	p.count()
	if r, err := store.SetNX(ctx, "k", "three", 20*time.Second); err != nil || !r.OK {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
	if n := p.count(); n["Authenticate"] != 0 || n["LeaseGrant"] != 1 {
		t.Errorf("SetNX sent %v; want a new lease, since each renewal logs in again", n)
	}
	if ok, err := store.DeleteIf(ctx, "k", "three"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	if r, err := store.Enter(ctx, "shared", "one", 10*time.Second, backends.Admission{}); err != nil || !r.OK {
		t.Errorf("Enter = %+v, %v", r, err)
	}
	if ok, err := store.Renew(ctx, "shared", "one", 20*time.Second); err != nil || !ok {
		t.Errorf("Renew = %v, %v", ok, err)
	}
	if r, err := store.TransferHold(ctx, "shared", "one", "two", 20*time.Second, "", true); err != nil || !r.OK {
		t.Errorf("TransferHold = %+v, %v", r, err)
	}
	if ok, err := store.Leave(ctx, "shared", "two"); err != nil || !ok {
		t.Errorf("Leave = %v, %v", ok, err)
	}
	for _, now := range []bool{false, true} {
		key := fmt.Sprint("evicted", now)
		if r, err := store.SetNX(ctx, key, "one", 10*time.Second); err != nil || !r.OK {
			t.Errorf("SetNX = %+v, %v", r, err)
		}
		if ok, err := store.Evict(ctx, key, backends.PrintOf("one"), backends.Eviction{Now: now, Foreign: true}); err != nil || !ok {
			t.Errorf("Evict = %v, %v", ok, err)
		}
	}
	if id, err := store.Identify(ctx); err != nil || id.Server == "" {
		t.Errorf("Identify = %+v, %v", id, err)
	}
	report, err := store.Check(ctx)
	if err != nil || report.Err() != nil || report.Cluster == "" {
		t.Errorf("Check = %v, %v", report, err)
	}
	wantProblems(t, report, etcd.ProblemMembers)

	elsewhere := etcd.New(as("app"), etcd.WithPrefix("another/"))
	_, err = elsewhere.SetNX(ctx, "k", "one", 10*time.Second)
	wantClass(t, "SetNX under another prefix", err, true, false)
	wantClass(t, "Watch under another prefix", elsewhere.Watch(ctx, "k", func() {}), true, false)
	_, err = elsewhere.Enter(ctx, "k", "one", 10*time.Second, backends.Admission{})
	wantClass(t, "Enter under another prefix", err, true, false)
	if _, err := elsewhere.Check(ctx); err == nil {
		t.Error("Check under another prefix: no error")
	}
	_, err = etcd.New(as("reader")).SetNX(ctx, "k", "one", 10*time.Second)
	wantClass(t, "SetNX of a user that may only read", err, true, false)
	if state, err := etcd.New(as("reader")).Inspect(ctx, "evictedfalse"); err != nil {
		t.Errorf("Inspect of a user that may only read = %+v, %v", state, err)
	}
	if page, err := etcd.New(as("reader")).List(ctx, "", "", 10); err != nil || len(page.Keys) != 1 {
		t.Errorf("List of a user that may only read = %+v, %v", page, err)
	}
	if seen, err := etcd.New(as("reader")).Inspect(ctx, "evictedfalse"); err == nil && seen.Holding == 1 {
		_, err := etcd.New(as("reader")).Evict(ctx, "evictedfalse", seen.Holds[0].Print, backends.Eviction{})
		wantClass(t, "Evict of a user that may only read", err, true, false)
	}
}
