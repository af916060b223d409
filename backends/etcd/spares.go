package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// spares are leases without a key, for the next grants. To grant a lease is a change of the cluster
// that a majority writes to disk, as the grant of a lock is. To keep a lease alive is not.
//
// A lease whose key may still come, because the outcome of its request is unknown, is never a spare:
// the next lock would end with it. Neither is one that may be near its end, so that no renewal meets it.
type spares struct {
	none  bool // a renewal would cost more than a lease
	mu    sync.Mutex
	free  map[int64][]clientv3.LeaseID // by their seconds
	count int
	terms map[clientv3.LeaseID]term // of the leases that this store has granted
	least int64                     // the shortest lease that the cluster has granted for less
}

// A term is the life of a lease.
type term struct {
	seconds int64
	began   time.Time // or earlier than it began
}

func (t term) young() bool { return time.Since(t.began) < time.Duration(t.seconds)*time.Second/2 }

const (
	maxSpares     = 64      // the others end by themselves
	maxTerms      = 1 << 14 // about a megabyte; then it begins anew, and the next releases leave no spares
	shortestLease = 2       // seconds, with the default election timeout of etcd
)

// grant makes a transaction that stores key, which is not there yet, with a lease that lives for so
// many seconds from now at least. It returns the answer, also if a condition did not hold.
//
// A spare lease is renewed while the transaction is on its way, which saves a round trip. So the key may
// be there before the renewal. It is a grant only after both, and is deleted if the renewal fails.
func (s *Store) grant(ctx context.Context, seconds int64, key string, store func(lease clientv3.LeaseID) *txn) (*clientv3.TxnResponse, error) {
	for {
		began := time.Now()
		lease, renewed, err := s.begin(ctx, seconds)
		if err != nil {
			return nil, s.notDone(ctx, err)
		}
		r, err := store(lease).Commit()
		if err != nil || !r.Succeeded {
			renewed.drop()
		}
		switch {
		case goesOnAfterEnd(ctx, err): // it ended on the way
			continue
		case err != nil: // the lease is not used again: the request may still arrive
			return nil, s.explain(ctx, err)
		case !r.Succeeded:
			if !shows(r, lease) {
				s.spares.give(lease)
			}
			return r, nil
		case renewed == nil:
			return r, nil
		}
		lives, err := renewed.wait()
		if err == nil && lives >= seconds {
			s.spares.note(lease, term{lives, began})
			return r, nil
		}
		_, undone := s.txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", r.Header.Revision)).Then(clientv3.OpDelete(key)).Commit()
		switch {
		case undone != nil:
			return nil, s.unknown(ctx, undone)
		case err != nil && !goesOnAfterEnd(ctx, err):
			return nil, s.notDone(ctx, err)
		}
	}
}

// shows tells that a key of the answer has the lease. The client library has then sent the transaction
// twice, and the first one has stored the key.
func shows(r *clientv3.TxnResponse, lease clientv3.LeaseID) bool {
	for _, part := range r.Responses {
		for _, kv := range part.GetResponseRange().GetKvs() {
			if kv.Lease == int64(lease) {
				return true
			}
		}
	}
	return false
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
	began := time.Now()
	var granted *clientv3.LeaseGrantResponse
	var err error
	for range max(len(s.client.Endpoints()), 1) {
		c := s.ways.begin(ctx)
		granted, err = c.lease.Grant(ctx, seconds)
		c.end(err)
		if !c.refused(err) {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	if granted.TTL > seconds {
		s.spares.atLeast(granted.TTL)
	}
	s.spares.note(granted.ID, term{granted.TTL, began})
	return granted.ID, nil
}

func (p *spares) note(id clientv3.LeaseID, t term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terms == nil || len(p.terms) >= maxTerms {
		p.terms = map[clientv3.LeaseID]term{}
	}
	p.terms[id] = t
}

// has reports whether there is a lease of so many seconds.
func (p *spares) has(seconds int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free[seconds]
	return len(free) > 0 && p.terms[free[len(free)-1]].young()
}

// take returns a lease of so many seconds; 0: there is none.
func (p *spares) take(seconds int64) clientv3.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	for free := p.free[seconds]; len(free) > 0; {
		id := free[len(free)-1]
		free = free[:len(free)-1]
		p.free[seconds] = free
		p.count--
		if p.terms[id].young() {
			return id
		}
	}
	return 0
}

// give keeps a lease that has no key, if this store has granted it of late.
func (p *spares) give(id clientv3.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.terms[id]
	if p.none || !t.young() {
		return
	}
	if p.count >= maxSpares {
		p.sweep()
	}
	if p.count >= maxSpares {
		return
	}
	if p.free == nil {
		p.free = map[int64][]clientv3.LeaseID{}
	}
	p.free[t.seconds] = append(p.free[t.seconds], id)
	p.count++
}

// sweep removes the leases that are not young any more.
func (p *spares) sweep() {
	p.count = 0
	for seconds, free := range p.free {
		p.free[seconds] = slices.DeleteFunc(free, func(id clientv3.LeaseID) bool { return !p.terms[id].young() })
		p.count += len(p.free[seconds])
	}
}

// atLeast notes that the cluster grants no lease under so many seconds.
func (p *spares) atLeast(seconds int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least = max(p.least, seconds)
}

// shortest is the shortest lease of the cluster, in seconds, as far as it is known.
func (p *spares) shortest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.least, shortestLease)
}
