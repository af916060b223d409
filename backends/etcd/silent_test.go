package etcd_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := strings.TrimPrefix(etcdtest.Start(t, 1, etcdtest.Fast).Endpoints()[0], "http://")
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, server, func(t *testing.T, addr string) *etcd.Store {
			return etcd.New(deaf(t, clientv3.Config{Endpoints: []string{"http://" + addr}}))
		}, (*etcd.Store).Check)
	})
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, server, func(t *testing.T, addr string) *etcd.Store { return open(t, addr, clientv3.Config{}) }, (*etcd.Store).Check)
	})
	// The client library logs in again for each renewal.
	t.Run("Open with a user name", func(t *testing.T) {
		t.Parallel()
		server := etcdtest.Start(t, 1, etcdtest.Fast)
		withUsers(t, dial(t, server.Endpoints()))
		silent.Run(t, server.Members[0].Addr(), func(t *testing.T, addr string) *etcd.Store {
			return open(t, addr, clientv3.Config{Username: "root", Password: password})
		}, (*etcd.Store).Check)
	})
}

// open returns a store on a client of Open. The client ends with the test. A server that has no CPU for
// five seconds does not tell in time who the user is.
func open(t *testing.T, addr string, config clientv3.Config, opts ...etcd.Option) *etcd.Store {
	t.Helper()
	config.Endpoints = []string{"http://" + addr}
	store, client, err := etcd.Open(config, opts...)
	for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && time.Since(began) < patience; {
		store, client, err = etcd.Open(config, opts...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return store
}

const password = "sesame"

// withUsers turns authentication on, with two users: root, and stranger, who has no rights.
func withUsers(t *testing.T, admin *clientv3.Client) {
	t.Helper()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", password); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.UserAdd(t.Context(), "stranger", password); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// deaf returns a client without a keep-alive: it never finds that a connection is silent.
func deaf(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// relays stand before the members of a cluster.
type relays []*redistest.Proxy

func before(t testing.TB, c *etcdtest.Cluster) (all relays) {
	for _, m := range c.Members {
		all = append(all, redistest.NewRelay(t, m.Addr()))
	}
	return all
}

func (all relays) endpoints() (urls []string) {
	for _, r := range all {
		urls = append(urls, "http://"+r.Addr())
	}
	return urls
}

func (all relays) open() (n int) {
	for _, r := range all {
		n += r.Open()
	}
	return n
}

// meet asks each member, so that the client has a connection to all that are there.
func meet(t testing.TB, store *etcd.Store) {
	t.Helper()
	for range 9 {
		eventually(t, "a member answers", func() bool {
			_, err := store.Inspect(t.Context(), "k")
			return err == nil
		})
	}
}

// The client asks its members in turn, so each attempt meets the one that is silent.
func TestAMemberThatFallsSilentKeepsNoWaiter(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady)
	holder := locker.New(single.New(etcd.New(dial(t, c.Endpoints()))))
	for name, fault := range map[string]func(t testing.TB, r *redistest.Proxy){
		"forgotten":       func(_ testing.TB, r *redistest.Proxy) { r.Forsake() },
		"silent for good": func(t testing.TB, r *redistest.Proxy) { r.BlackHole(true); t.Cleanup(r.CutAll) },
	} {
		for i := range c.Members {
			t.Run(name+" "+c.Members[i].Name, func(t *testing.T) {
				t.Parallel()
				trial.WhileBusy(t, locker.DefaultTTL, func(t testing.TB, _ time.Duration) {
					key := t.Name()
					all := before(t, c)
					store := etcd.New(deaf(t, clientv3.Config{Endpoints: all.endpoints()}))
					meet(t, store)
					locks := locker.New(single.New(store))
					held, err := holder.Lock(t.Context(), key, locker.WithWait(patience)) // of the take before
					if err != nil {
						t.Fatal(err)
					}
					fault(t, all[i])
					if err := held.Unlock(t.Context()); err != nil {
						t.Logf("its lease ends by itself: %v", err)
					}
					began := time.Now()
					l, err := locks.Lock(t.Context(), key, locker.WithWait(patience))
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("after %v", time.Since(began).Round(time.Millisecond))
					if err := l.Extend(t.Context(), 10*time.Second); err != nil {
						t.Errorf("Extend = %v", err)
					}
					if err := l.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock = %v", err)
					}
				})
			})
		}
	}
}

// A call of so little time ends before its connection counts as silent. Without an answer it grants nothing, and
// leaves nothing to clean up that would last longer.
func TestCallsWithLittleTimeGetPastAMemberThatIsSilent(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady)
	for name, idle := range map[string]time.Duration{"in use": 0, "after a pause": 6 * time.Second} {
		for _, least := range []time.Duration{500 * time.Millisecond, 800 * time.Millisecond} {
			t.Run(name+" "+least.String(), func(t *testing.T) {
				t.Parallel()
				trial.WhileBusy(t, time.Second, func(take testing.TB, _ time.Duration) {
					all := before(take, c)
					store := etcd.New(deaf(t, clientv3.Config{Endpoints: all.endpoints()}))
					meet(take, store)
					time.Sleep(idle)
					all[0].Forsake()
					calls, inARow := 0, 0
					for ; calls < 30 && inARow < 9; calls++ { // three rounds of the members
						ctx, cancel := context.WithTimeout(t.Context(), least)
						r, err := store.SetNX(ctx, t.Name(), "token", 10*time.Second)
						cancel()
						if inARow++; err != nil || !r.OK {
							inARow = 0
						}
					}
					t.Logf("%d calls, the last %d in a row were granted", calls, inARow)
					if inARow < 9 {
						take.Errorf("%d calls, and only the last %d in a row were granted", calls, inARow)
					}
				})
			})
		}
	}
}

// falls lets a call fall silent. The next one goes over another connection.
func falls(t *testing.T, store *etcd.Store, all relays) {
	t.Helper()
	for _, r := range all {
		r.Forsake()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r, err := store.SetNX(ctx, "silent", "token", 10*time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("SetNX on a silent connection = %+v, %v", r, err)
	}
}

// eachCall makes each kind of call once.
func eachCall(t *testing.T, store *etcd.Store) {
	t.Helper()
	const first, ttl = 25 * time.Second, 30 * time.Second // the longest that a store without options grants
	lock, shared := t.Name(), t.Name()+" shared"
	for range 3 { // with spare leases, too
		if r, err := store.SetNXNumbered(t.Context(), lock, "one", first, backends.Turn{}); err != nil || !r.OK || r.Fence == 0 {
			t.Errorf("SetNXNumbered = %+v, %v", r, err)
		}
		if ok, err := store.ExpireIf(t.Context(), lock, "one", ttl); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
		if r, err := store.Transfer(t.Context(), lock, "one", "two", ttl, true); err != nil || !r.OK {
			t.Errorf("Transfer = %+v, %v", r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), lock, "two"); err != nil || !ok {
			t.Errorf("DeleteIf = %v, %v", ok, err)
		}
		if r, err := store.Enter(t.Context(), shared, "one", first, backends.Admission{}); err != nil || !r.OK {
			t.Errorf("Enter = %+v, %v", r, err)
		}
		if ok, err := store.Renew(t.Context(), shared, "one", ttl); err != nil || !ok {
			t.Errorf("Renew = %v, %v", ok, err)
		}
		if r, err := store.TransferHold(t.Context(), shared, "one", "two", ttl, "", true); err != nil || !r.OK {
			t.Errorf("TransferHold = %+v, %v", r, err)
		}
		if ok, err := store.Leave(t.Context(), shared, "two"); err != nil || !ok {
			t.Errorf("Leave = %v, %v", ok, err)
		}
	}
}

func TestEachCallGoesOverAnotherConnectionAndBack(t *testing.T) {
	t.Parallel()
	all := before(t, etcdtest.Start(t, 1, etcdtest.Fast))
	store := etcd.New(deaf(t, clientv3.Config{Endpoints: all.endpoints()}))
	eachCall(t, store)
	falls(t, store, all)
	eachCall(t, store)
	if n := all.open(); n != 2 {
		t.Errorf("%d connections; want the client's and one more", n)
	}
	all[0].CutAll() // now the client finds that its connection is dead
	eventually(t, "the store has no connection of its own", func() bool {
		_, _ = store.Inspect(t.Context(), "k")
		return all.open() == 1
	})
	eachCall(t, store)
	if n := all.open(); n != 1 {
		t.Errorf("%d connections; want the client's only", n)
	}
}

// A renewal may last for half of its lease, so the next one must not wait until it has ended.
func TestACallUnderWayOnASilentConnectionKeepsNoLaterOneWaiting(t *testing.T) {
	t.Parallel()
	all := before(t, etcdtest.Start(t, 1, etcdtest.Fast))
	store := etcd.New(deaf(t, clientv3.Config{Endpoints: all.endpoints()}))
	meet(t, store)
	for _, r := range all {
		r.Forsake()
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := store.SetNX(ctx, "silent", "token", 10*time.Second)
		first <- err
	}()
	eventually(t, "a later call is answered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond) // a call that ends so soon is not silent itself
		defer cancel()
		r, err := store.SetNX(ctx, "k", "token", 10*time.Second)
		return err == nil && r.OK
	})
	select {
	case err := <-first:
		t.Errorf("the call on the silent connection has ended: %v", err)
	default:
	}
	cancel()
	<-first
}

// A learner refuses all calls for locks, and a member that is behind those that change something.
func TestAMemberThatRefusesCallsFailsNoneWhileAnotherIsSilent(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, etcdtest.Fast)
	for method, told := range map[string]error{
		"Range":          rpctypes.ErrGRPCNotSupportedForLearner,
		"LeaseGrant":     rpctypes.ErrGRPCRequestTooManyRequests,
		"Txn":            rpctypes.ErrGRPCRequestTooManyRequests,
		"LeaseKeepAlive": rpctypes.ErrGRPCNotSupportedForLearner,
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			all := append(append(before(t, c), before(t, c)...), before(t, c)...)
			var client *clientv3.Client
			var refuses atomic.Pointer[grpc.ClientConn] // the first connection of the store with such a call
			refused := func(cc *grpc.ClientConn, full string) bool {
				if !strings.HasSuffix(full, "/"+method) || client == nil || cc == client.ActiveConnection() {
					return false
				}
				refuses.CompareAndSwap(nil, cc)
				return refuses.Load() == cc
			}
			client = deaf(t, clientv3.Config{Endpoints: all.endpoints(), DialOptions: []grpc.DialOption{
				grpc.WithChainUnaryInterceptor(func(ctx context.Context, full string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if refused(cc, full) {
						return told
					}
					return invoke(ctx, full, req, reply, cc, opts...)
				}),
				grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, full string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					stream, err := next(ctx, desc, cc, full, opts...)
					if err == nil && refused(cc, full) {
						return renewed{stream, func(*pb.LeaseKeepAliveResponse, func() error) error { return told }}, nil
					}
					return stream, err
				}),
			}})
			store := etcd.New(client)
			meet(t, store)
			falls(t, store, all)
			eachCall(t, store)
			if refuses.Load() == nil {
				t.Error("nothing was refused: this test shows nothing")
			}
		})
	}
}

// With two clusters there would be two holders.
func TestNoCallGoesToAClusterThatTheClientHasLeft(t *testing.T) {
	t.Parallel()
	old, next := etcdtest.Start(t, 1, etcdtest.Fast), etcdtest.Start(t, 1, etcdtest.Fast)
	all := before(t, old)
	client := deaf(t, clientv3.Config{Endpoints: all.endpoints()})
	store := etcd.New(client)
	meet(t, store)
	falls(t, store, all)
	if r, err := store.SetNX(t.Context(), "before", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	client.SetEndpoints(next.Endpoints()...)
	if r, err := store.SetNX(t.Context(), "k", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if there(t, dial(t, old.Endpoints()), "k") || !there(t, dial(t, next.Endpoints()), "k") {
		t.Error("the lock is in the cluster that the client has left")
	}
}

func TestAMemberThatIsDownFailsNoCallWhileAnotherIsSilent(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady)
	all := before(t, c)
	direct := etcd.New(dial(t, c.Endpoints()))
	for down := range c.Members {
		client := deaf(t, clientv3.Config{Endpoints: all.endpoints()})
		store := etcd.New(client)
		meet(t, store)
		c.Members[down].Kill()
		eventually(t, "the others can do it", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := direct.SetNX(ctx, "first", "token", 10*time.Second)
			return err == nil
		})
		falls(t, store, all)
		eachCall(t, store)
		_ = client.Close()
		c.Members[down].Restart()
	}
}

func TestNothingIsLeftOfAConnectionWhenTheClientIsClosed(t *testing.T) {
	c := etcdtest.Start(t, 1, etcdtest.Fast)
	all := before(t, c)
	goroutines := func() int {
		return strings.Count(stacks(), "google.golang.org/grpc") + strings.Count(stacks(), "backends/etcd.(")
	}
	already := goroutines()
	client := deaf(t, clientv3.Config{Endpoints: all.endpoints()})
	store := etcd.New(client)
	meet(t, store)
	if err := store.Watch(t.Context(), "k", func() {}); err != nil {
		t.Fatal(err)
	}
	falls(t, store, all)
	eachCall(t, store)
	if n := all.open(); n != 2 {
		t.Fatalf("%d connections; want the client's and one more", n)
	}
	_ = client.Close()
	eventually(t, "no connection and no goroutine is left", func() bool { return all.open() <= 1 && goroutines() <= already })
	_, err := store.SetNX(t.Context(), "k", "token", 10*time.Second)
	wantClass(t, "SetNX of a client that is closed", err, true, false)
	wantClass(t, "Watch of a client that is closed", store.Watch(trial.Patient(t), "k", func() {}), true, false)
}

func TestNothingWaitsForAClientThatIsClosed(t *testing.T) {
	t.Parallel()
	c, client := one(t)
	if r, err := etcd.New(client, etcd.WithMaxTTL(patience)).SetNX(t.Context(), "k", "token", patience); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	closed := dial(t, c.Endpoints())
	waits, failed := make(bell, 1), make(chan error, 1)
	locks := locker.New(single.New(watched{etcd.New(closed), waits}))
	go func() {
		_, err := locks.Lock(t.Context(), "k", locker.WithWait(patience/2))
		failed <- err
	}()
	waits.await(t, "the waiter watches")
	_ = closed.Close()
	wantClass(t, "Lock", <-failed, true, false)
}

// watched tells when a key is watched.
type watched struct {
	*etcd.Store

	bell
}

func (w watched) Watch(ctx context.Context, key string, wake func()) error {
	defer w.ring()
	return w.Store.Watch(ctx, key, wake)
}

// A program may end the ctx of its client before it releases its locks.
func TestAClientWhoseCtxHasEndedIsNotClosed(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, etcdtest.Fast)
	ctx, cancel := context.WithCancel(t.Context())
	store := open(t, c.Members[0].Addr(), clientv3.Config{Context: ctx})
	meet(t, store)
	cancel()
	eachCall(t, store)
}

// stacks are those of all goroutines.
func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// The attempt and its cleanup go over different connections, so the attempt may arrive later.
func TestAnAttemptThatArrivesAfterItsCleanupEndsWithItsLease(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, etcdtest.Fast)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	arrive, withheld := make(chan struct{}), make(chan struct{})
	var second atomic.Bool
	p.set(func(method string, call func() error) error {
		if method == "Txn" && !second.Swap(true) {
			close(withheld)
			<-arrive
		}
		return call()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	attempt := make(chan error, 1)
	go func() {
		_, err := store.SetNX(ctx, "k", "token", 5*time.Second)
		attempt <- err
	}()
	<-withheld
	<-ctx.Done()
	if ok, err := store.DeleteIf(t.Context(), "k", "token"); ok || err != nil {
		t.Fatalf("the cleanup = %v, %v", ok, err)
	}
	close(arrive)
	if err := <-attempt; err != nil {
		t.Fatalf("it has not arrived: %v", err)
	}
	eventually(t, "the key is free", func() bool {
		r, err := store.SetNX(t.Context(), "k", "next", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return r.OK
	})
}
