package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A hold is one key, with a lease of its own. Its value has its slot, the number of its epoch, and
// its group.
type hold struct {
	key, token, group string
	slot              int   // -1: none
	epoch             int64 // the number of the epoch; 0: it has begun the epoch, and its create revision is the number
	kv                *mvccpb.KeyValue
}

func (h hold) value() string { return fmt.Sprintf("%d %d %s", h.slot, h.epoch, h.group) }

// number is that of the epoch.
func (h hold) number() int64 {
	if h.epoch == 0 {
		return h.kv.CreateRevision
	}
	return h.epoch
}

// holds are what a key has at one revision.
type holds struct {
	all      []hold
	revision int64
	foreign  bool // one of them has no lease, so nobody knows when it ends
}

// holds reads the holds of a key. The error is errWrongType if a lock is there, or something that no
// store has written.
func (s *Store) holds(ctx context.Context, key string) (found holds, err error) {
	at := s.at(key)
	got, err := s.ways.read(ctx, clientv3.OpGet(at, clientv3.WithRange(end(at))))
	if err != nil {
		return found, err
	}
	r := got.Get()
	found.revision = r.Header.Revision
	for _, kv := range r.Kvs {
		token, ok := strings.CutPrefix(string(kv.Key), holdsAt(at))
		if !ok {
			if string(kv.Key) == at {
				return found, errWrongType
			}
			continue // the number of a lock that an operator has deleted
		}
		if kv.Lease == 0 {
			found.foreign = true
			continue
		}
		h := hold{key: string(kv.Key), token: token, kv: kv}
		if n, err := fmt.Sscanf(string(kv.Value), "%d %d", &h.slot, &h.epoch); n != 2 || err != nil {
			return found, errWrongType
		}
		parts := strings.SplitN(string(kv.Value), " ", 3)
		h.group = parts[len(parts)-1]
		found.all = append(found.all, h)
	}
	return found, nil
}

func (h *holds) of(token string) (hold, bool) {
	i := slices.IndexFunc(h.all, func(h hold) bool { return h.token == token })
	if i < 0 {
		return hold{}, false
	}
	return h.all[i], true
}

func (h *holds) admit(a backends.Admission) bool {
	return len(h.all) == 0 || h.all[0].group == a.Group && (a.Limit <= 0 || len(h.all) < a.Limit)
}

// freeSlot is the lowest that no hold has.
func (h *holds) freeSlot() int {
	for slot := 0; ; slot++ {
		if !slices.ContainsFunc(h.all, func(h hold) bool { return h.slot == slot }) {
			return slot
		}
	}
}

func (h *holds) refused() backends.Result {
	if h.foreign {
		return backends.Result{Foreign: true}
	}
	r := backends.Result{Holds: len(h.all)}
	if r.Holds > 0 {
		first := slices.MinFunc(h.all, func(a, b hold) int { return int(a.kv.CreateRevision - b.kv.CreateRevision) })
		r.Holder = backends.InTheWay(backends.LabelOf(first.token))
	}
	return r
}

// unchanged says that no hold was added or changed since they were read, that nobody has the lock of
// the key, and that the epoch of beside goes on. Holds may have ended.
func (h *holds) unchanged(at string, beside *hold) []clientv3.Cmp {
	conditions := []clientv3.Cmp{
		isFree(at),
		clientv3.Compare(clientv3.ModRevision(holdsAt(at)), "<", h.revision+1).WithRange(end(at)),
	}
	if beside != nil {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(beside.key), "=", beside.kv.CreateRevision))
	}
	return conditions
}

// Enter implements [backends.SharedStore]. There is no queue. If others enter at the same time, it
// reads again what is there.
func (s *Store) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	if err := a.Validate(); err != nil {
		return backends.Result{}, backends.AsPermanent(err)
	}
	s.wakeUp(ctx)
	for {
		found, err := s.holds(ctx, key)
		if err != nil {
			return backends.Result{}, s.notDone(ctx, err)
		}
		mine, there := found.of(token)
		if found.foreign || !there && !found.admit(a) {
			return found.refused(), nil
		}
		var r backends.Result
		if there {
			r, err = s.again(ctx, key, mine, seconds)
			if err != nil {
				return backends.Result{}, s.explain(ctx, err)
			}
		} else if r, err = s.join(ctx, key, token, seconds, a, found); err != nil {
			return backends.Result{}, err
		}
		if r.OK {
			r.Room = a.Room(r.Holds)
			if !a.Numbered {
				r.Fence = 0
			}
			return r, nil
		}
	}
}

// join adds a hold. The Result is without OK if others have come in between.
func (s *Store) join(ctx context.Context, key, token string, seconds int64, a backends.Admission, found holds) (backends.Result, error) {
	at := s.at(key)
	h := hold{key: holdsAt(at) + token, group: a.Group, slot: -1}
	if a.Slots {
		h.slot = found.freeSlot()
	}
	var beside *hold
	if len(found.all) > 0 {
		beside = &found.all[0]
		h.epoch = beside.number()
	}
	r, err := s.grant(ctx, seconds, h.key, func(lease clientv3.LeaseID) *txn {
		return s.txn(ctx).If(found.unchanged(at, beside)...).
			Then(clientv3.OpPut(h.key, h.value(), clientv3.WithLease(lease)), countOp(at)).
			Else(clientv3.OpGet(h.key))
	})
	if err != nil || !r.Succeeded {
		return backends.Result{}, err
	}
	return entered(h, r), nil
}

// again lets a hold live that is there. The Result is without OK if it has changed.
func (s *Store) again(ctx context.Context, key string, h hold, seconds int64) (backends.Result, error) {
	ok, err := s.keepHold(ctx, h, seconds)
	if !ok || err != nil {
		return backends.Result{}, err
	}
	now, err := s.holds(ctx, key)
	if err != nil {
		return backends.Result{}, err
	}
	return backends.Result{OK: true, Holds: max(len(now.all), 1), Slot: max(h.slot, 0), Fence: uint64(h.number())}, nil
}

// keepHold lets a hold live for so many seconds from now at least. It is false if the hold has changed.
func (s *Store) keepHold(ctx context.Context, h hold, seconds int64) (done bool, err error) {
	lease := clientv3.LeaseID(h.kv.Lease)
	enough, err := s.renew(ctx, lease, seconds)
	move := s.moves.of(h.key) // as in keep
	switch {
	case err != nil:
		return false, ignoreGone(ctx, err)
	case enough && move == nil:
		return true, nil
	case !enough:
		move = s.moves.begin(h.key)
	}
	defer func() { s.moves.end(h.key, move, done, s.config.maxTTL) }()
	if !enough {
		if lease, err = s.newLease(ctx, seconds); err != nil {
			return false, err
		}
	}
	r, err := s.txn(ctx).If(clientv3.Compare(clientv3.ModRevision(h.key), "=", h.kv.ModRevision)).
		Then(clientv3.OpPut(h.key, string(h.kv.Value), clientv3.WithLease(lease))).Commit()
	return err == nil && r.Succeeded, ignoreGone(ctx, err)
}

// countOp counts the holds of a key.
func countOp(at string) clientv3.Op {
	return clientv3.OpGet(holdsAt(at), clientv3.WithRange(end(at)), clientv3.WithCountOnly())
}

// entered is the result of a transaction that has stored a hold, and counted the holds at its end.
func entered(h hold, r *clientv3.TxnResponse) backends.Result {
	h.kv = &mvccpb.KeyValue{CreateRevision: r.Header.Revision}
	count := r.Responses[len(r.Responses)-1].GetResponseRange().Count
	return backends.Result{OK: true, Holds: int(count), Slot: max(h.slot, 0), Fence: uint64(h.number())}
}

// Renew implements [backends.SharedStore].
func (s *Store) Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return false, err
	}
	at := s.at(key)
	for {
		r, err := s.txn(ctx).Then(clientv3.OpGet(holdsAt(at)+token), clientv3.OpGet(at, clientv3.WithKeysOnly())).Commit()
		if err != nil {
			return false, s.notDone(ctx, err)
		}
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(r.Responses[1].GetResponseRange().Kvs) > 0 {
			return false, errWrongType
		}
		if len(kvs) == 0 {
			return false, nil
		}
		if ok, err := s.keepHold(ctx, hold{key: holdsAt(at) + token, kv: kvs[0]}, seconds); ok || err != nil {
			return ok, s.explain(ctx, err)
		}
	}
}

// Leave implements [backends.SharedStore].
func (s *Store) Leave(ctx context.Context, key, token string) (ok bool, err error) {
	ctx = begun(ctx)
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	at := s.at(key)
	r, err := s.txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(holdsAt(at)+token), ">", 0)).
		Then(clientv3.OpDelete(holdsAt(at)+token, clientv3.WithPrevKV())).
		Else(clientv3.OpGet(at, clientv3.WithKeysOnly())).Commit()
	switch {
	case err != nil:
		return false, s.explain(ctx, err)
	case !r.Succeeded && len(r.Responses[0].GetResponseRange().Kvs) > 0:
		return false, errWrongType
	case !r.Succeeded:
		return false, nil
	}
	s.spares.give(clientv3.LeaseID(r.Responses[0].GetResponseDeleteRange().PrevKvs[0].Lease))
	s.uses.note()
	return true, nil
}

// GuardHold is [Store.Guard] for a lease of a semaphore or of a reentrant lock.
func (s *Store) GuardHold(lease contract.Lease) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(holdsAt(s.at(lease.Key))+lease.Token), ">", 0)
}

// TransferHold implements [backends.SharedTransferStore].
func (s *Store) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	for {
		found, err := s.holds(ctx, key)
		if err != nil {
			return backends.Result{}, s.notDone(ctx, err)
		}
		var r backends.Result
		if there, ok := found.of(token); ok {
			r, err = s.again(ctx, key, there, seconds)
		} else if old, ok := found.of(from); ok && !found.foreign {
			if old.group != group {
				return backends.Result{}, errOtherGroup
			}
			r, err = s.move(ctx, key, old, token, seconds, numbered, found)
		} else {
			return found.refused(), nil
		}
		if err != nil {
			return backends.Result{}, s.explain(ctx, err)
		}
		if r.OK {
			if !numbered {
				r.Fence = 0
			}
			return r, nil
		}
	}
}

// move gives a hold to another token. The Result is without OK if something has changed.
func (s *Store) move(ctx context.Context, key string, old hold, token string, seconds int64, numbered bool, found holds) (backends.Result, error) {
	lease := clientv3.LeaseID(old.kv.Lease)
	enough, err := s.renew(ctx, lease, seconds)
	if err != nil {
		return backends.Result{}, ignoreGone(ctx, err)
	}
	stored := false
	if !enough {
		move := s.moves.begin(old.key)
		defer func() { s.moves.end(old.key, move, stored, s.config.maxTTL) }()
		if lease, err = s.newLease(ctx, seconds); err != nil {
			return backends.Result{}, err
		}
	}
	at := s.at(key)
	next := hold{key: holdsAt(at) + token, group: old.group, slot: old.slot, epoch: old.number()}
	beside := slices.IndexFunc(found.all, func(h hold) bool { return h.token != old.token })
	conditions := found.unchanged(at, &old)
	if beside >= 0 {
		conditions = append(conditions, found.unchanged(at, &found.all[beside])[2])
	} else if numbered { // it is alone, and begins an epoch
		next.epoch = 0
	}
	r, err := s.txn(ctx).If(conditions...).
		Then(clientv3.OpDelete(old.key), clientv3.OpPut(next.key, next.value(), clientv3.WithLease(lease)), countOp(at)).Commit()
	switch {
	case goesOnAfterEnd(ctx, err):
		return backends.Result{}, nil
	case err != nil:
		return backends.Result{}, err
	case !r.Succeeded:
		return backends.Result{}, nil
	}
	stored = true
	return entered(next, r), nil
}
