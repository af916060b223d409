package etcd

import (
	"context"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
)

// at is the key of etcd for the lock of a key. The length keeps keys apart, whatever bytes they have.
func (s *Store) at(key string) string { return s.config.prefix + strconv.Itoa(len(key)) + "/" + key }

// What etcd has of a key lies from at up to end: the lock, its number, and the holds. So one compare of
// a range says that nobody has the lock or a hold, one Get reads all of it, and one Watch hears it.
func numberAt(at string) string { return at + "#" }
func holdsAt(at string) string  { return at + "/" }
func end(at string) string      { return at + "0" } // what follows "/"

// isFree says that nobody has the lock of a key. It says nothing about holds.
func isFree(at string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(at), "=", 0) }

// A state is what was read of a key: the lock, or that it has holds.
type state struct {
	lock     *mvccpb.KeyValue
	value    string // of the lock, with its mark
	number   int64  // what Transfer has given it
	shared   bool
	revision int64 // of the cluster, when it was read
}

// mark is what the value of a lock begins with. A value without it is not ours.
const mark = "="

// getOp reads a lock and its number. If there are holds instead, it reads one.
func getOp(at string) clientv3.Op {
	return clientv3.OpGet(at, clientv3.WithRange(end(at)), clientv3.WithLimit(3))
}

func (s *Store) get(ctx context.Context, key string) (state, error) {
	at := s.at(key)
	r, err := s.ways.read(ctx, getOp(at))
	if err != nil {
		return state{}, err
	}
	return read(at, r.Get().Header, r.Get().Kvs), nil
}

// readTxn reads the getOp of a transaction. The revision is in the header of the whole transaction: a
// server may send its parts without headers.
func readTxn(at string, r *clientv3.TxnResponse) state {
	return read(at, r.Header, r.Responses[0].GetResponseRange().Kvs)
}

func read(at string, h *pb.ResponseHeader, kvs []*mvccpb.KeyValue) state {
	s := state{revision: h.Revision}
	for _, kv := range kvs {
		switch key := string(kv.Key); key {
		case at:
			s.lock, s.value = kv, string(kv.Value)
		case numberAt(at):
			s.number, _ = strconv.ParseInt(string(kv.Value), 10, 64)
		default:
			s.shared = true
		}
	}
	return s
}

func (s *state) token() string { return strings.TrimPrefix(s.value, mark) }

// fence is the number of the grant. A number that an operator has left behind is smaller than the
// revision of any later grant. No check keeps it under 2^53, as the contract wants it: with a million changes
// a second, a revision comes there after 285 years. Only --bump-revision could take it there sooner.
func (s *state) fence() uint64 { return uint64(max(s.lock.CreateRevision, s.number)) }

// moved is what a lock becomes that goes to another token.
func (s *state) moved(value string, number int64) state {
	next := *s
	next.value, next.number = mark+value, number
	return next
}

func (s *state) held() backends.Result {
	if s.lock == nil {
		return backends.Result{}
	}
	return backends.Result{Foreign: s.lock.Lease == 0, Holder: backends.InTheWay(backends.LabelOf(s.token()))}
}

func (s *state) wrongType() error {
	if s.shared || s.lock != nil && !strings.HasPrefix(s.value, mark) {
		return errWrongType
	}
	return nil
}
