package etcd

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
)

// Inspect implements [backends.Inspector]. It asks for the life of each hold, some at a time, since
// etcd keeps it with the lease. The number of a free key is not known.
func (s *Store) Inspect(ctx context.Context, key string) (backends.State, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	if err := s.ready(ctx); err != nil {
		return backends.State{}, err
	}
	lock, err := s.get(ctx, key)
	if err != nil {
		return backends.State{}, s.explain(ctx, err)
	}
	var found holds
	state := backends.State{}
	switch {
	case lock.lock == nil:
		if found, err = s.holds(ctx, key); err != nil {
			return backends.State{}, s.explain(ctx, err)
		}
	case lock.wrongType() != nil:
		return backends.State{}, errWrongType
	default:
		found.foreign = lock.lock.Lease == 0
		found.all = []hold{{token: lock.token(), slot: -1, epoch: int64(lock.fence()), kv: lock.lock}}
	}
	if len(found.all) > 0 {
		state.Fence, state.Group = uint64(found.all[0].number()), found.all[0].group
	}
	if found.foreign {
		state.Foreign = true
		return state, nil
	}
	if state.Holds, err = s.lives(ctx, found.all); err != nil {
		return backends.State{}, s.explain(ctx, err)
	}
	state.Holding = len(state.Holds)
	state.Holds = state.Holds[:min(state.Holding, backends.MaxListed)]
	return state, nil
}

// lives returns the holds that have not ended, in the order of their ends.
func (s *Store) lives(ctx context.Context, all []hold) (living []backends.Hold, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, 16)
	for _, h := range all {
		turns <- struct{}{}
		wg.Go(func() {
			life, failed := s.client.TimeToLive(ctx, clientv3.LeaseID(h.kv.Lease))
			<-turns
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed != nil:
				err = failed
			case life.TTL >= 0: // a lease that has ended has -1
				left := min(life.TTL+1, life.GrantedTTL) // etcd cuts the seconds off
				living = append(living, backends.Hold{
					Holder: backends.HolderOf(h.token), Left: time.Duration(left) * time.Second, Slot: h.slot,
				})
			}
		})
	}
	wg.Wait()
	slices.SortStableFunc(living, func(a, b backends.Hold) int { return int(a.Left - b.Left) })
	return living, err
}

// clusterID is the id of the cluster as etcdctl shows it.
func clusterID(h *pb.ResponseHeader) string { return strconv.FormatUint(h.ClusterId, 16) }
