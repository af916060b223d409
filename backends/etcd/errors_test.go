package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
)

// The client that etcd makes for a server in the same process is one.
func TestAClientWithoutAConnectionIsPermanent(t *testing.T) {
	t.Parallel()
	store := etcd.New(clientv3.NewCtxClient(t.Context()))
	_, renewed := store.ExpireIf(t.Context(), "k", "token", time.Second)
	for call, err := range map[string]error{"ExpireIf": renewed, "Watch": store.Watch(t.Context(), "k", func() {})} {
		wantClass(t, call, err, true, false)
		if err != nil && !strings.Contains(err.Error(), "clientv3.New") {
			t.Errorf("%s: %v; want that it says what to do", call, err)
		}
	}
}

// A tap sees the calls of a client, and may answer in the place of the server.
type tap struct {
	mu     sync.Mutex
	calls  map[string]int // by the last part of their names
	answer func(method string, call func() error) error
}

func (p *tap) option() grpc.DialOption {
	p.calls = map[string]int{}
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, full string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		method := full[strings.LastIndexByte(full, '/')+1:]
		p.mu.Lock()
		p.calls[method]++
		answer := p.answer
		p.mu.Unlock()
		if answer == nil {
			return invoke(ctx, full, req, reply, cc, opts...)
		}
		ctx = context.WithoutCancel(ctx) // it may be sent late
		return answer(method, func() error { return invoke(ctx, full, req, reply, cc, opts...) })
	})
}

func (p *tap) set(answer func(method string, call func() error) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// count returns how often each method was called since the last count.
func (p *tap) count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.calls
	p.calls = map[string]int{}
	return was
}

func TestErrorsTellTheirClass(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	for _, tt := range []struct {
		told              error
		permanent, unsent bool
		says              string
	}{
		{rpctypes.ErrGRPCPermissionDenied, true, false, "readwrite on the prefix"},
		{rpctypes.ErrGRPCUserEmpty, true, false, "readwrite on the prefix"},
		{rpctypes.ErrGRPCAuthFailed, true, false, "readwrite on the prefix"},
		{rpctypes.ErrGRPCRequestTooLarge, true, false, ""},
		{rpctypes.ErrGRPCLeaseTTLTooLarge, true, false, ""},
		{status.Error(codes.Unimplemented, "a proxy"), true, false, ""},
		{rpctypes.ErrGRPCRequestTooManyRequests, false, true, "nothing was done"},
		{rpctypes.ErrGRPCNoLeader, false, true, "nothing was done"},
		{rpctypes.ErrGRPCNotLeader, false, true, "nothing was done"},
		{rpctypes.ErrGRPCNotSupportedForLearner, false, true, "nothing was done"},
		{rpctypes.ErrGRPCNotCapable, false, true, "nothing was done"}, // it has just started
		{rpctypes.ErrGRPCAuthOldRevision, false, true, "nothing was done"},
		{rpctypes.ErrGRPCNoSpace, false, false, "disarm the alarm"}, // it may have been the change that filled it
		{rpctypes.ErrGRPCStopped, false, false, "the outcome is unknown"},
		{rpctypes.ErrGRPCTimeout, false, false, "the outcome is unknown"},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, false, false, "the outcome is unknown"},
		{rpctypes.ErrGRPCLeaderChanged, false, false, "the outcome is unknown"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), false, false, "the outcome is unknown"},
		{rpctypes.ErrGRPCClusterIDMismatch, false, false, "the outcome is unknown"},
		{status.Error(codes.FailedPrecondition, "a proxy"), false, false, "the outcome is unknown"},
		{status.Error(codes.Internal, "stream terminated"), false, false, "the outcome is unknown"},
	} {
		p.set(func(method string, call func() error) error {
			if method == "Txn" {
				return tt.told
			}
			return call()
		})
		_, err := store.SetNX(t.Context(), "k", "token", time.Second)
		wantClass(t, "SetNX", err, tt.permanent, tt.unsent)
		_, err = store.DeleteIf(t.Context(), "k", "token")
		wantClass(t, "DeleteIf", err, tt.permanent, tt.unsent)
		_, err = store.Enter(t.Context(), "shared", "token", time.Second, backends.Admission{})
		wantClass(t, "Enter", err, tt.permanent, tt.unsent)
		if text := err.Error(); !strings.Contains(text, tt.says) || !strings.Contains(text, c.Endpoints()[0]) {
			t.Errorf("%q does not say %q or does not name the address", text, tt.says)
		}
	}
}

func TestACallThatFailsBeforeItChangesAnythingIsNotDone(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	for _, failing := range []string{"Range", "LeaseGrant"} {
		p.set(func(method string, call func() error) error {
			if method == failing {
				return status.Error(codes.Internal, "stream terminated")
			}
			return call()
		})
		_, err := store.SetNX(t.Context(), "k", "token", time.Second)
		wantClass(t, "SetNX when "+failing+" fails", err, false, true)
		_, err = store.Enter(t.Context(), "shared", "token", time.Second, backends.Admission{})
		wantClass(t, "Enter when "+failing+" fails", err, false, true)
		if failing != "Range" {
			continue
		}
		_, err = store.ExpireIf(t.Context(), "k", "token", time.Second)
		wantClass(t, "ExpireIf", err, false, true)
		_, err = store.Transfer(t.Context(), "k", "token", "next", time.Second, true)
		wantClass(t, "Transfer", err, false, true)
		_, err = store.TransferHold(t.Context(), "shared", "token", "next", time.Second, "", true)
		wantClass(t, "TransferHold", err, false, true)
	}
}

// The length of the key follows the prefix, so this one could meet the prefix "locks/".
func TestAPrefixThatEndsInADigitIsRefused(t *testing.T) {
	client := dial(t, []string{"http://127.0.0.1:1"}) // nothing is sent
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := etcd.New(client, etcd.WithPrefix("locks/1")).SetNX(ctx, "k", "token", time.Second)
	wantClass(t, "SetNX", err, true, false)
	if err == nil || !strings.Contains(err.Error(), "put / at its end") {
		t.Errorf("%v does not say what to do", err)
	}
}

func TestNothingListens(t *testing.T) {
	store := etcd.New(dial(t, []string{"http://127.0.0.1:1"}))
	for name, call := range map[string]func(ctx context.Context) error{
		"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "k", "token", time.Second); return err },
		"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "k", "token"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := call(ctx)
		cancel()
		wantClass(t, name, err, false, name == "SetNX")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s = %v; want the end of the ctx, and the address", name, err)
		}
	}
}

func TestAMemberThatHangsIsUnknownAndEndsWithTheCtx(t *testing.T) {
	c, client := one(t)
	store := etcd.New(client)
	if r, err := store.SetNX(t.Context(), "k", "token", time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	c.Members[0].Pause()
	for name, call := range map[string]func(ctx context.Context) error{
		"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "free", "token", time.Second); return err },
		"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "k", "token", time.Second); return err },
		"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "k", "token"); return err },
		"Watch":    func(ctx context.Context) error { return store.Watch(ctx, "k", func() {}) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s = %v; want an error that matches the end of the ctx", name, err)
		}
		var p interface{ Permanent() bool }
		if errors.As(err, &p) && p.Permanent() {
			t.Errorf("%s: %v is permanent", name, err)
		}
		var u interface{ Unsent() bool }
		if name == "DeleteIf" && errors.As(err, &u) && u.Unsent() {
			t.Errorf("%s: %v; its outcome is not known", name, err)
		}
	}
	c.Members[0].Resume()
}

// A transaction whose answer was lost may arrive later, with its lease. The next lock must not have it.
func TestALeaseWhoseOutcomeIsUnknownIsNotUsedAgain(t *testing.T) {
	c, plain := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	pair := func(key string) {
		t.Helper()
		if r, err := store.SetNX(t.Context(), key, "token", 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	pair("before") // it leaves a spare
	var late func() error
	p.set(func(method string, call func() error) error {
		if method == "Txn" {
			late = call
			return status.Error(codes.Unavailable, "error reading from server: EOF")
		}
		return call()
	})
	if _, err := store.SetNX(t.Context(), "lost", "token", 10*time.Second); err == nil {
		t.Fatal("no error")
	}
	p.set(nil)
	if r, err := store.SetNX(t.Context(), "next", "token", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if err := late(); err != nil {
		t.Fatal(err)
	}
	lost, next := lease(t, plain, "lost"), lease(t, plain, "next")
	if lost == next || lost == 0 || next == 0 {
		t.Errorf("the leases are %x and %x; want two", lost, next)
	}
	if ok, err := store.DeleteIf(t.Context(), "lost", "token"); err != nil || !ok { // what the cleanup does
		t.Fatal(ok, err)
	}
}

func lease(t *testing.T, client *clientv3.Client, key string) int64 {
	t.Helper()
	r, err := client.Get(t.Context(), at(key))
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%q: %v, %v", key, r, err)
	}
	return r.Kvs[0].Lease
}

func TestWhatCallsCost(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	pair := func(key string, ttl time.Duration) {
		t.Helper()
		if r, err := store.SetNX(t.Context(), key, "token", ttl); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	for range 10 {
		pair("k", 10*time.Second)
	}
	if n := p.count(); n["LeaseGrant"] != 1 || n["Txn"] != 20 || n["Range"] != 2 {
		t.Errorf("10 pairs sent %v; want one LeaseGrant, two Txn per pair, and a Range for the first two", n)
	}
	for range 10 {
		pair("k", 20*time.Second)
		pair("k", 10*time.Second)
	}
	if n := p.count(); n["LeaseGrant"] > 11 {
		t.Errorf("10 pairs of two ttls each sent %v; want spares of both", n)
	}
	if r, err := store.SetNX(t.Context(), "k", "holder", 10*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	pair("other", 10*time.Second) // it leaves a spare
	p.count()
	for range 10 {
		if r, err := store.SetNX(t.Context(), "k", "token", 10*time.Second); err != nil || r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.ExpireIf(t.Context(), "k", "holder", 10*time.Second); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if n := p.count(); n["LeaseGrant"] != 0 || n["Txn"] != 1 || n["Range"] != 19 {
		t.Errorf("10 attempts that found it held, and 10 renewals, sent %v; want one Txn, by the first attempt", n)
	}
}

// A refusal that did not look first is an entry in the log of the cluster.
func TestRefusalsThatDidNotLookAreAtMostHalfOfTheGrants(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, c.Endpoints(), p.option()))
	keys := []string{"1", "2", "3", "4", "5", "6"}
	for _, key := range append(keys, "held") {
		if r, err := store.SetNX(t.Context(), key, "token", 10*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	for _, key := range keys { // each leaves a spare
		if ok, err := store.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	p.count()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if r, err := store.SetNX(t.Context(), "held", "other", 10*time.Second); err != nil || r.OK {
				t.Error(r, err)
			}
		})
	}
	all.Wait()
	if n := p.count(); n["LeaseGrant"] != 0 || n["Txn"] > 3 || n["Txn"]+n["Range"] != 16 {
		t.Errorf("16 attempts at once after 7 grants sent %v; want at most 3 Txn", n)
	}
}

// A renewed stream is a renewal of a lease, with another answer.
type renewed struct {
	grpc.ClientStream
	answer renewalAnswer
}

type renewalAnswer func(r *pb.LeaseKeepAliveResponse, call func() error) error

func (r renewed) RecvMsg(m any) error {
	return r.answer(m.(*pb.LeaseKeepAliveResponse), func() error { return r.ClientStream.RecvMsg(m) })
}

// renewals puts answer in the place of the server for each renewal of a lease.
func renewals(answer renewalAnswer) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := next(ctx, desc, cc, method, opts...)
			if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") {
				return stream, err
			}
			return renewed{stream, answer}, nil
		})
}

// KeepAliveOnce of the client library asks again and again, without a pause, if it is told the second.
func TestARenewalThatFailsAsksEachMemberOnce(t *testing.T) {
	for name, told := range map[string]error{
		"a member without a leader":      rpctypes.ErrGRPCNoLeader,
		"a proxy that reaches no member": status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 503"),
	} {
		t.Run(name, func(t *testing.T) {
			c, plain := one(t)
			var asked atomic.Int64
			var fails atomic.Bool
			store := etcd.New(dial(t, append(c.Endpoints(), c.Endpoints()...), renewals(func(_ *pb.LeaseKeepAliveResponse, call func() error) error {
				if !fails.Load() {
					return call()
				}
				asked.Add(1)
				return told
			})))
			for _, key := range []string{"k", "spare"} {
				if r, err := store.SetNX(t.Context(), key, "token", 10*time.Second); err != nil || !r.OK {
					t.Fatal(r, err)
				}
			}
			if r, err := store.Enter(t.Context(), "shared", "token", 10*time.Second, backends.Admission{}); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			if ok, err := store.DeleteIf(t.Context(), "spare", "token"); err != nil || !ok { // it leaves a spare
				t.Fatal(ok, err)
			}
			fails.Store(true)
			for call, do := range map[string]func(ctx context.Context) error{
				"ExpireIf": func(ctx context.Context) error {
					_, err := store.ExpireIf(ctx, "k", "token", 10*time.Second)
					return err
				},
				"Renew": func(ctx context.Context) error {
					_, err := store.Renew(ctx, "shared", "token", 10*time.Second)
					return err
				},
				"SetNX": func(ctx context.Context) error {
					_, err := store.SetNX(ctx, "spare", "token", 10*time.Second)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // as long as the client library would ask
				err := do(ctx)
				if ctx.Err() != nil {
					t.Errorf("%s asked until the end of its ctx", call)
				}
				cancel()
				wantClass(t, call, err, false, call == "SetNX" || errors.Is(told, rpctypes.ErrGRPCNoLeader))
				if n := asked.Swap(0); n != 2 {
					t.Errorf("%s asked %d times; want once for each of two members", call, n)
				}
			}
			if r, err := plain.Get(t.Context(), at("spare")); err != nil || len(r.Kvs) != 0 {
				t.Errorf("the SetNX has left %v, %v", r, err)
			}
		})
	}
}

func TestAMemberWithoutALeaderIsPassedOver(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	store := etcd.New(dial(t, append(c.Endpoints(), c.Endpoints()...), p.option()))
	refused := false
	p.set(func(method string, call func() error) error {
		if refused = !refused && method == "Txn"; refused {
			return rpctypes.ErrGRPCNoLeader
		}
		return call()
	})
	if r, err := store.SetNX(t.Context(), "k", "token", time.Second); err != nil || !r.OK {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
	if ok, err := store.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
}
