package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
)

// Evict implements [backends.Evictor]. What closes a key has the lease of the hold. So a renewal that
// has seen the hold, and comes to its lease after Evict, keeps the key closed for as long as its caller
// may work. A store uses a lease again only after it has deleted its key, and never revokes one.
func (s *Store) Evict(ctx context.Context, key, seen string, e backends.Eviction) (_ bool, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	ctx = begun(ctx)
	if err := e.Validate(seen); err != nil {
		return false, backends.AsPermanent(err)
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	found, err := s.get(ctx, key)
	switch {
	case err != nil:
		return false, s.notDone(ctx, err)
	case found.lock == nil:
		return s.evictHold(ctx, key, seen, e)
	case found.wrongType() != nil:
		return false, errWrongType
	case backends.PrintOf(found.token()) != seen:
		return false, nil
	case !e.Foreign && !backends.IsToken(found.token()), found.lock.Lease == 0 && !(e.Foreign && e.Now):
		return false, errForeign
	}
	at := s.at(key)
	do := clientv3.OpPut(at, mark+e.Value(seen), clientv3.WithIgnoreLease())
	if e.Now {
		do = clientv3.OpDelete(at, clientv3.WithRange(holdsAt(at))) // with its number
	}
	// A renewal may have changed the revision, and the lease: they do not matter.
	r, err := s.txn(ctx).If(clientv3.Compare(clientv3.Value(at), "=", found.value)).Then(do).Commit()
	if err != nil {
		return false, s.explain(ctx, err)
	}
	return r.Succeeded, nil
}

func (s *Store) evictHold(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
	for {
		lock, found, err := s.whatIs(ctx, key)
		if err != nil {
			return false, s.notDone(ctx, err)
		}
		if lock.lock != nil { // it came in between
			return s.Evict(ctx, key, seen, e)
		}
		i := slices.IndexFunc(found.all, func(h hold) bool { return backends.PrintOf(h.token) == seen })
		switch {
		case found.foreign, i >= 0 && !e.Foreign && !backends.IsToken(found.all[i].token):
			return false, errForeign
		case i < 0:
			return false, nil
		}
		h := found.all[i]
		do := []clientv3.Op{clientv3.OpDelete(h.key)}
		if !e.Now {
			closed := hold{group: h.group, slot: h.slot, epoch: h.number()}
			do = append(do, clientv3.OpPut(holdsAt(s.at(key))+e.Value(seen), closed.value(), clientv3.WithLease(clientv3.LeaseID(h.kv.Lease))))
		}
		r, err := s.txn(ctx).If(clientv3.Compare(clientv3.ModRevision(h.key), "=", h.kv.ModRevision)).Then(do...).Commit()
		switch {
		case goesOnAfterEnd(ctx, err): // it ended on the way
		case err != nil:
			return false, s.explain(ctx, err)
		case r.Succeeded:
			return true, nil
		}
	}
}
