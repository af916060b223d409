package etcd

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A txn is a transaction that goes to the next member if one has no leader, as the reads of the client
// library do. That member has done nothing, so the transaction is still made once. Without this, an
// attempt of three calls to three members in turn may send its transaction to the same member each time.
type txn struct {
	ctx       context.Context
	client    *clientv3.Client
	cmps      []clientv3.Cmp
	then, not []clientv3.Op
}

func (s *Store) txn(ctx context.Context) *txn { return &txn{ctx: ctx, client: s.client} }

func (t *txn) If(cmps ...clientv3.Cmp) *txn { t.cmps = cmps; return t }
func (t *txn) Then(ops ...clientv3.Op) *txn { t.then = ops; return t }
func (t *txn) Else(ops ...clientv3.Op) *txn { t.not = ops; return t }

func (t *txn) Commit() (r *clientv3.TxnResponse, err error) {
	for range max(len(t.client.Endpoints()), 1) {
		r, err = t.client.Txn(t.ctx).If(t.cmps...).Then(t.then...).Else(t.not...).Commit()
		if !errors.Is(err, rpctypes.ErrNoLeader) {
			break
		}
	}
	return r, err
}

// keepAlive starts a lease anew, and returns for how many seconds it now lives. It goes to the next
// member as a transaction does, and asks once for each member at most. KeepAliveOnce of the client library
// does not go on if a member has no leader. If a proxy reaches no member, it asks without a pause until
// ctx ends.
func (s *Store) keepAlive(ctx context.Context, lease clientv3.LeaseID) (seconds int64, err error) {
	for range max(len(s.client.Endpoints()), 1) {
		seconds, err = s.keepAliveOnce(ctx, lease)
		if code := status.Code(err); code != codes.Unavailable && code != codes.Internal {
			break
		}
	}
	return seconds, err
}

func (s *Store) keepAliveOnce(ctx context.Context, lease clientv3.LeaseID) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()                                                                                             // it ends the stream
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true)) // as the client library waits
	if err != nil {
		return 0, err
	}
	// An error of Send is EOF, and Recv tells why.
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	alive, err := stream.Recv()
	switch {
	case err != nil:
		return 0, err
	case alive.TTL <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	}
	return alive.TTL, nil
}
