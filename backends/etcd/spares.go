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
	free  map[int64][]clientv3.LeaseID // by their seconds; 0: not known
	count int
	least int64 // the shortest lease that the cluster has granted for less
}

const (
	maxSpares     = 64 // the others end by themselves
	shortestLease = 2  // seconds, with the default election timeout of etcd
)

// lease returns a lease of so many seconds that begins now.
func (s *Store) lease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	if id, err := s.spare(ctx, seconds); id != 0 || err != nil {
		return id, err
	}
	granted, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	if granted.TTL > seconds {
		s.spares.atLeast(granted.TTL)
	}
	return granted.ID, nil
}

// spare is lease without a new one; 0: there is none.
func (s *Store) spare(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	for {
		id, known := s.spares.take(seconds)
		if id == 0 {
			return 0, nil
		}
		lives, err := s.keepAlive(ctx, id)
		switch {
		case isLeaseGone(err):
			s.spares.drop(known) // the others have been unused for longer
		case err != nil:
			return 0, err
		case lives == seconds:
			return id, nil
		default:
			s.spares.give(id, lives)
		}
	}
}

// ahead renews a spare lease while the caller reads whether the key is free, which saves a round trip.
// The caller takes what it returns once, or stop gives it back. A grant and its release take 0.92–0.98
// of the time with it on one host, and 0.78–0.85 if each message is on its way for half a millisecond
// or more (go test -run '^$' -bench Ahead -benchtime 300x .; six and three runs on a busy machine). If
// the last attempt found its key held, it does nothing.
func (s *Store) ahead(ctx context.Context, seconds int64) (take func() (clientv3.LeaseID, error), stop func()) {
	if !s.lucky.Load() {
		return func() (clientv3.LeaseID, error) { return s.lease(ctx, seconds) }, func() {}
	}
	type renewed struct {
		id  clientv3.LeaseID
		err error
	}
	found, stopped := make(chan renewed), make(chan struct{})
	outer := ctx
	ctx, cancel := context.WithCancel(ctx) // without a connection, a renewal waits for as long as ctx allows
	go func() {
		id, err := s.spare(ctx, seconds)
		select {
		case found <- renewed{id, err}:
		case <-stopped:
			s.spares.give(id, seconds)
		}
	}()
	used := false
	take = func() (clientv3.LeaseID, error) {
		if !used {
			used = true
			if r := <-found; r.id != 0 || r.err != nil {
				return r.id, r.err
			}
		}
		return s.lease(outer, seconds)
	}
	return take, func() { close(stopped); cancel() }
}

// take returns the lease of so many seconds that was given last, or one of unknown life, and under
// what it was kept; 0: there is none.
func (p *spares) take(seconds int64) (id clientv3.LeaseID, known int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range []int64{seconds, 0} {
		if all := p.free[known]; len(all) > 0 {
			p.free[known] = all[:len(all)-1]
			p.count--
			return all[len(all)-1], known
		}
	}
	return 0, 0
}

// give keeps a lease that has no key. It lives for so many seconds from each renewal on; 0: it is not
// known.
func (p *spares) give(id clientv3.LeaseID, seconds int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == 0 || p.count >= maxSpares {
		return
	}
	if p.free == nil {
		p.free = map[int64][]clientv3.LeaseID{}
	}
	p.free[seconds] = append(p.free[seconds], id)
	p.count++
}

// drop forgets the leases of so many seconds.
func (p *spares) drop(seconds int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count -= len(p.free[seconds])
	delete(p.free, seconds)
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
