package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// spares are leases without a key, for the next grants. To grant a lease is a change of the cluster
// that a majority writes to disk, as the grant of a lock is. To keep a lease alive is not.
//
// A lease whose key may still come, because the outcome of its request is unknown, is never a spare:
// the next lock would end with it.
type spares struct {
	mu    sync.Mutex
	free  map[int64][]clientv3.LeaseID // by their seconds
	count int
	lives map[clientv3.LeaseID]int64 // the seconds of the leases that this store has granted
	least int64                      // the shortest lease that the cluster has granted for less
}

const (
	maxSpares     = 64      // the others end by themselves
	maxLives      = 1 << 14 // under a megabyte; then it begins anew, and the next releases leave no spares
	shortestLease = 2       // seconds, with the default election timeout of etcd
)

// grant makes a transaction that stores key, which is not there yet, with a lease that lives for so
// many seconds from now at least. It returns the answer, also if a condition did not hold.
//
// A spare lease is renewed while the transaction is on its way, which saves a round trip. So the key may
// be there before the renewal. It is a grant only after both, and is deleted if the renewal fails.
func (s *Store) grant(ctx context.Context, seconds int64, key string, store func(lease clientv3.LeaseID) *txn) (*clientv3.TxnResponse, error) {
	for {
		lease, renewed, err := s.begin(ctx, seconds)
		if err != nil {
			return nil, s.notDone(ctx, err)
		}
		r, err := store(lease).Commit()
		if err != nil || !r.Succeeded {
			renewed.drop()
		}
		switch {
		case isLeaseGone(err): // it ended on the way
			s.spares.drop(seconds)
			continue
		case err != nil: // the lease is not used again: the request may still arrive
			return nil, s.explain(ctx, err)
		case !r.Succeeded:
			s.spares.give(lease)
			return r, nil
		case renewed == nil:
			return r, nil
		}
		switch _, failed := renewed.wait(); {
		case failed == nil:
			return r, nil
		case isLeaseGone(failed): // and the key with it
			s.spares.drop(seconds)
		default:
			_, err := s.txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", r.Header.Revision)).Then(clientv3.OpDelete(key)).Commit()
			if err != nil {
				return nil, s.explain(ctx, err)
			}
			return nil, s.notDone(ctx, failed)
		}
	}
}

// begin returns a lease of so many seconds. If it is a spare, its renewal has been sent.
func (s *Store) begin(ctx context.Context, seconds int64) (lease clientv3.LeaseID, sent *renewal, err error) {
	if lease = s.spares.take(seconds); lease == 0 {
		lease, err = s.newLease(ctx, seconds)
		return lease, nil, err
	}
	sent, err = s.renewal(ctx, lease)
	return lease, sent, err
}

// newLease returns a lease that begins now.
func (s *Store) newLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	granted, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	s.spares.note(granted.ID, granted.TTL, seconds)
	return granted.ID, nil
}

// note remembers the life of a lease, and if it is longer than it was asked for.
func (p *spares) note(id clientv3.LeaseID, lives, asked int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lives > asked {
		p.least = max(p.least, lives)
	}
	if p.lives == nil || len(p.lives) >= maxLives {
		p.lives = map[clientv3.LeaseID]int64{}
	}
	p.lives[id] = lives
}

// has reports whether there is a lease of so many seconds.
func (p *spares) has(seconds int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free[seconds]) > 0
}

// take returns the lease of so many seconds that was given last; 0: there is none.
func (p *spares) take(seconds int64) clientv3.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.free[seconds]
	if len(all) == 0 {
		return 0
	}
	p.free[seconds] = all[:len(all)-1]
	p.count--
	return all[len(all)-1]
}

// give keeps a lease that has no key, if this store has granted it.
func (p *spares) give(id clientv3.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lives, known := p.lives[id]
	if !known || p.count >= maxSpares {
		return
	}
	if p.free == nil {
		p.free = map[int64][]clientv3.LeaseID{}
	}
	p.free[lives] = append(p.free[lives], id)
	p.count++
}

// drop forgets the leases of so many seconds, since one of them has ended: the others have been unused for longer.
func (p *spares) drop(seconds int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count -= len(p.free[seconds])
	delete(p.free, seconds)
}

// shortest is the shortest lease of the cluster, in seconds, as far as it is known.
func (p *spares) shortest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.least, shortestLease)
}
