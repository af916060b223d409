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
// library do, or if one refuses it on a connection of the store. That member has done nothing, so the
// transaction is still made once. Without this, an attempt of three calls to three members in turn would
// send its transaction to the same member each time.
type txn struct {
	ctx       context.Context
	ways      *ways
	cmps      []clientv3.Cmp
	then, not []clientv3.Op
}

func (s *Store) txn(ctx context.Context) *txn { return &txn{ctx: ctx, ways: s.ways} }

func (t *txn) If(cmps ...clientv3.Cmp) *txn { t.cmps = cmps; return t }
func (t *txn) Then(ops ...clientv3.Op) *txn { t.then = ops; return t }
func (t *txn) Else(ops ...clientv3.Op) *txn { t.not = ops; return t }

func (t *txn) Commit() (r *clientv3.TxnResponse, err error) {
	for range max(len(t.ways.client.Endpoints()), 1) {
		c := t.ways.begin(t.ctx)
		r, err = c.kv.Txn(t.ctx).If(t.cmps...).Then(t.then...).Else(t.not...).Commit()
		c.end(err)
		if !errors.Is(err, rpctypes.ErrNoLeader) && !c.refused(err) {
			break
		}
	}
	return r, err
}

// A renewal starts a lease anew. Between send and wait, the store may do something else.
//
// It goes to the next member as a transaction does, and asks once for each member at most. KeepAliveOnce
// of the client library does not go on if a member has no leader. If a proxy reaches no member, it asks
// without a pause until ctx ends.
type renewal struct {
	ctx    context.Context
	ways   *ways
	lease  clientv3.LeaseID
	call   *call
	stream pb.Lease_LeaseKeepAliveClient
	stop   context.CancelFunc // it ends the stream
}

// keepAlive renews a lease, and returns for how many seconds it now lives.
func (s *Store) keepAlive(ctx context.Context, lease clientv3.LeaseID) (seconds int64, err error) {
	t := traceOf(ctx)
	t.begin()
	r, err := s.renewal(ctx, lease)
	t.end(r.stream != nil)
	if err != nil {
		return 0, err
	}
	return r.wait()
}

// renewal sends the request. The caller waits for the answer, or drops it.
func (s *Store) renewal(ctx context.Context, lease clientv3.LeaseID) (*renewal, error) {
	r := &renewal{ctx: ctx, ways: s.ways, lease: lease}
	return r, r.send()
}

func (r *renewal) send() (err error) {
	ctx, stop := context.WithCancel(r.ctx)
	r.call, r.stop = r.ways.begin(r.ctx), stop
	r.stream, err = pb.NewLeaseClient(r.call.conn).LeaseKeepAlive(ctx, grpc.WaitForReady(r.call.waits))
	traceOf(r.ctx).tell(unreached(err))
	if err == nil {
		err = r.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(r.lease)})
	}
	switch {
	case errors.Is(err, io.EOF): // the answer tells why
		return nil
	case err != nil:
		r.end(err)
	}
	return err
}

func (r *renewal) end(err error) {
	r.call.end(err)
	r.stop()
}

// drop ends a renewal whose answer nobody needs. One that is nil was not sent.
func (r *renewal) drop() {
	if r != nil {
		r.end(context.Canceled)
	}
}

// wait returns for how many seconds the lease now lives.
func (r *renewal) wait() (seconds int64, err error) {
	for more := len(r.ways.client.Endpoints()); ; more-- {
		seconds, err = r.answer()
		code := status.Code(err)
		goesOn := code == codes.Unavailable || code == codes.Internal || r.call.refused(err)
		if !goesOn || more <= 1 {
			return seconds, err
		}
		if err := r.send(); err != nil {
			return 0, err
		}
	}
}

func (r *renewal) answer() (seconds int64, err error) {
	alive, err := r.stream.Recv()
	r.end(err)
	switch {
	case err != nil:
		return 0, err
	case alive.TTL <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	}
	return alive.TTL, nil
}
