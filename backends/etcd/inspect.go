package etcd

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
)

// Inspect implements [backends.Inspector]. It asks for the life of each hold, some at a time, since
// etcd keeps it with the lease. The number of a free key is not known.
func (s *Store) Inspect(ctx context.Context, key string) (_ backends.State, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	ctx = begun(ctx)
	if err := s.ready(ctx); err != nil {
		return backends.State{}, err
	}
	lock, found, err := s.whatIs(ctx, key)
	if err != nil {
		return backends.State{}, s.notDone(ctx, err)
	}
	state := backends.State{Waiting: backends.NotKnown}
	switch {
	case lock.lock == nil:
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
		if lock.lock != nil {
			state.Print = backends.PrintOf(lock.token())
		}
		return state, nil
	}
	if state.Holds, err = s.lives(ctx, found.all); err != nil {
		return backends.State{}, s.notDone(ctx, err)
	}
	state.Holding = len(state.Holds)
	state.Holds = state.Holds[:min(state.Holding, backends.MaxListed)]
	return state, nil
}

// whatIs reads the lock of a key or, if there is none, its holds. A lock that comes between the two
// reads is no wrong type: both are read again, until one shows what is there.
func (s *Store) whatIs(ctx context.Context, key string) (lock state, found holds, err error) {
	for {
		lock, err = s.get(ctx, key)
		if err != nil || lock.lock != nil {
			return lock, holds{}, err
		}
		found, err = s.holds(ctx, key)
		if !errors.Is(err, errWrongType) {
			return lock, found, err
		}
		if lock, again := s.get(ctx, key); again != nil || lock.lock == nil {
			return lock, holds{}, cmp.Or(again, err)
		}
	}
}

// lives returns the holds that have not ended, in the order of their ends.
func (s *Store) lives(ctx context.Context, all []hold) (living []backends.Hold, err error) {
	var mu sync.Mutex
	err = someAtATime(all, func(h hold) error {
		life, err := s.client.TimeToLive(ctx, clientv3.LeaseID(h.kv.Lease))
		if err != nil || life.TTL < 0 { // a lease that has ended has -1
			return err
		}
		left := time.Duration(min(life.TTL+1, life.GrantedTTL)) * time.Second // etcd cuts the seconds off
		mu.Lock()
		defer mu.Unlock()
		living = append(living, backends.HoldOf(backends.LabelOf(h.token), backends.PrintOf(h.token), backends.IsToken(h.token), left, h.slot))
		return nil
	})
	slices.SortStableFunc(living, func(a, b backends.Hold) int { return cmp.Compare(a.Left, b.Left) })
	return living, err
}

// someAtATime calls do for all, 16 at a time, and returns one of the errors.
func someAtATime[T any](all []T, do func(T) error) (err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, 16)
	for _, one := range all {
		turns <- struct{}{}
		wg.Go(func() {
			failed := do(one)
			<-turns
			if failed != nil {
				mu.Lock()
				defer mu.Unlock()
				err = failed
			}
		})
	}
	wg.Wait()
	return err
}

// List implements [backends.Lister]. Each call reads the names of limit keys of etcd, whatever prefix
// is, and then inspects the locks among them that begin with it. Prefix may be empty, unless that of the
// store is.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	ctx = begun(ctx)
	if err := s.ready(ctx); err != nil {
		return backends.Page{}, err
	}
	if err := backends.ValidateLimit(limit); err != nil {
		return backends.Page{}, backends.AsPermanent(err)
	}
	if prefix == "" && s.config.prefix == "" {
		return backends.Page{}, backends.Invalid("nothing tells locks from other data of the cluster: list by a prefix, or give the store one (etcd.WithPrefix)")
	}
	from, err := hex.DecodeString(after)
	if err != nil {
		return backends.Page{}, backends.Invalidf("after %q is not the Next of a page", after)
	}
	limited, done := bounded.Context(ctx)
	r, err := s.client.Get(limited, cmp.Or(s.config.prefix+string(from), "\x00"), clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.config.prefix)),
		clientv3.WithLimit(int64(limit)), clientv3.WithKeysOnly())
	done(&err)
	if err != nil {
		return backends.Page{}, s.notDone(ctx, err)
	}
	var keys []string
	next := ""
	for _, kv := range r.Kvs {
		key, ok := s.keyOf(string(kv.Key))
		if !ok { // it is not ours
			next = string(kv.Key) + "\x00"
			continue
		}
		next = end(s.at(key)) // past its number and its holds
		if strings.HasPrefix(key, prefix) && !strings.Contains(key, "\x00") {
			keys = append(keys, key)
		}
	}
	var page backends.Page
	if r.More {
		page.Next = hex.EncodeToString([]byte(strings.TrimPrefix(next, s.config.prefix)))
	}
	var mu sync.Mutex
	err = someAtATime(slices.Compact(keys), func(key string) error {
		state, err := s.Inspect(ctx, key)
		if errors.Is(err, backends.ErrWrongType) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil && (state.Holding > 0 || state.Foreign) {
			page.Keys = append(page.Keys, backends.KeyState{Key: key, State: state})
		}
		return err
	})
	if err != nil {
		return backends.Page{}, err
	}
	return page, nil
}

// keyOf is the key of the lock that a key of etcd belongs to. It is not ok for one that no store writes.
func (s *Store) keyOf(at string) (key string, ok bool) {
	length, rest, _ := strings.Cut(strings.TrimPrefix(at, s.config.prefix), "/")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return "", false
	}
	key = rest[:n]
	lock := s.at(key)
	return key, at == lock || at == numberAt(lock) || strings.HasPrefix(at, holdsAt(lock))
}

// clusterID is the id of the cluster as etcdctl shows it.
func clusterID(h *pb.ResponseHeader) string { return strconv.FormatUint(h.ClusterId, 16) }
