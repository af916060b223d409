package etcd

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	firstRetry = 10 * time.Millisecond
	maxRetry   = time.Second
)

// Watch implements [backends.Store]. All watches of a client share a stream. A member that has lost
// its leader ends its watches, so that they go on at another member.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	active := make(chan error, 1)
	go s.watch(ctx, s.at(key), wake, active)
	select {
	case err := <-active:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch watches until ctx is done or the client is closed, or until the watch is not permitted. active is told
// once.
func (s *Store) watch(ctx context.Context, at string, wake func(), active chan<- error) {
	began := false
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		// a context of its own: otherwise the client may keep a watch that the server has ended
		session, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for r := range s.client.Watch(session, at, clientv3.WithRange(end(at)), clientv3.WithFilterPut(), clientv3.WithCreatedNotify()) {
			if err := r.Err(); err != nil {
				if isForbidden(err) {
					stop()
					if !began { // else the right was withdrawn, and waiters poll from now on
						active <- &Error{Code: codes.PermissionDenied, Endpoint: s.Endpoint(), Err: err}
					}
					return
				}
				break
			}
			switch {
			case r.Created && !began:
				began = true
				active <- nil
			case r.Created || len(r.Events) > 0: // nobody knows what came before the watch was created anew
				wake()
			}
			pause = firstRetry
		}
		stop()
		if err := s.closed(); err != nil {
			if began {
				wake() // a waiter finds it by its next attempt
			} else {
				active <- err
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// isForbidden tells that the user of the client may not watch. The server says so only in the text of
// the watch that it ends.
func isForbidden(err error) bool {
	for _, reason := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCUserEmpty} {
		if strings.Contains(err.Error(), rpctypes.ErrorDesc(reason)) {
			return true
		}
	}
	return false
}
