package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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
