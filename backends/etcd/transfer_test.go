package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
)

// A renewal comes between the two requests of a Transfer, and the server gives a part of a transaction no
// header of its own.
func TestATransferThatMeetsARenewalHasAGreaterNumber(t *testing.T) {
	c, plain := one(t)
	var meets atomic.Bool
	store := etcd.New(dial(t, c.Endpoints(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if !strings.HasSuffix(method, "/Txn") {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			if meets.CompareAndSwap(true, false) {
				if _, err := plain.Put(ctx, at("k"), "=one", clientv3.WithIgnoreLease()); err != nil {
					t.Error(err)
				}
			}
			err := invoke(ctx, method, req, reply, cc, opts...)
			for _, part := range reply.(*pb.TxnResponse).Responses {
				if r := part.GetResponseRange(); r != nil {
					r.Header = nil
				}
			}
			return err
		})))
	granted, err := store.SetNXNumbered(t.Context(), "k", "one", 10*time.Second, backends.Turn{})
	if err != nil || !granted.OK {
		t.Fatal(granted, err)
	}
	meets.Store(true)
	moved, err := store.Transfer(t.Context(), "k", "one", "two", 10*time.Second, true)
	if err != nil || !moved.OK || moved.Fence <= granted.Fence || meets.Load() {
		t.Errorf("Transfer = %+v, %v; want a number over %d", moved, err, granted.Fence)
	}
}
