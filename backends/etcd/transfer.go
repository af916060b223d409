package etcd

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Transfer implements [backends.TransferStore]. The create revision of the key stays, so the new number
// is kept beside it. It is one more than the revision at which the old holder was seen. So it is
// greater than each number before it, and smaller than the revision of each later grant.
func (s *Store) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (backends.Result, error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	found, err := s.get(ctx, key)
	if err != nil {
		return backends.Result{}, s.notDone(ctx, err)
	}
	for err == nil {
		if err := found.wrongType(); err != nil {
			return backends.Result{}, err
		}
		next := found.moved(value, found.number)
		switch {
		case found.lock == nil || found.token() != from && found.token() != value:
			return found.held(), nil
		case found.token() == from && from != value && numbered:
			next.number = found.revision + 1
		}
		var done bool
		if done, found, err = s.keep(ctx, key, found, next, seconds); done {
			r := backends.Result{OK: true}
			if numbered {
				r.Fence = found.fence()
			}
			return r, nil
		}
	}
	return backends.Result{}, s.explain(ctx, err)
}
